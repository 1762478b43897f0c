"""Files of geometries, opened by the extension of their names: the content of a file never chooses its parser.

GeoJSON is split into records here. Files that need GDAL, and all files of zones, are read by a separate process, in
which GDAL has one driver and, for zones, memory and time are limited.
"""

GDAL_DRIVERS = {".gpkg": "GPKG", ".shp": "ESRI Shapefile", ".fgb": "FlatGeobuf"}
"""The GDAL driver that reads a file, by the extension of its name."""

GEOJSON_EXTENSIONS = (".geojson", ".json")
"""GeoJSON files with one FeatureCollection."""

GEOJSON_LINES_EXTENSIONS = (".geojsonl",)
"""GeoJSON files with one record per line."""
