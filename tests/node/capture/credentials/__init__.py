"""The corpus of credentials: each as it stands in a text, with its kind and where that form comes from."""
