"""Files of geometries, opened by their names: nothing in a file chooses how it is read, or another file.

GeoJSON is split into records here. Whatever needs GDAL, and every file of zones, is read by another process, which has
one driver and, for zones, limits of memory and time.
"""

DRIVERS = {".gpkg": "GPKG", ".shp": "ESRI Shapefile", ".fgb": "FlatGeobuf"}
"""Which of GDAL's drivers reads a file, by the ending of its name."""

DOCUMENTS = (".geojson", ".json")
LINES = (".geojsonl",)
"""Names of GeoJSON: one FeatureCollection, and one record per line."""
