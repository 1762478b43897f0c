"""A release in the browser: a local web page with a map, a JSON interface, and its cells for GIS programs.

It reads a release and answers; it holds nothing else, changes nothing, and asks no other machine.
"""

from veilmap.explore.server import explore as explore
