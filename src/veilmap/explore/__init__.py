"""A release in the browser: a local web page with a map, a JSON interface, and the leaves for GIS programs.

The server reads one release and answers from it. It writes nothing and contacts no other machine.
"""

from veilmap.explore.server import explore as explore
