"""Build what is distributed: the image, the command as one file, krew."""
