"""The parts of the page: sections, marks and drawings, as markup."""
