"""Parts that the recipes are built from. Imports point one way: recipes, custom_components, torchtune."""
