"""The parts of the catalog pages as markup: sections, marks and drawings."""
