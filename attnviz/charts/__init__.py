"""Charts: a frame goes in, an Altair chart comes out; nothing is computed or kept here."""
