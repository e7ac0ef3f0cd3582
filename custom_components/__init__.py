"""Parts that recipes are built from. Imports point one way: recipes, this package, torchtune."""
