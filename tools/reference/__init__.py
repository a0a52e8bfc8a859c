"""What renders pages of docs/reference from the code. Run from the root of the repository."""
