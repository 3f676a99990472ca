"""Images in, classes out: preprocessing, classification, labels drawn on a picture."""
