"""The pack's recipes and configs: their names, where they lie, and how torchtune learns of them.

In a checkout recipes lie in ``recipes/`` and configs in ``configs/``, both beside this package.
In an installed wheel recipes are top-level modules beside this package (``recipes`` there is
torchtune's own folder) and configs lie in ``custom_components/configs/``.

To add a recipe or a config, put the file there and its name into ``RECIPE_CONFIGS``.
"""

import custom_components.compat  # noqa: F401

from dataclasses import dataclass
from pathlib import Path

from torchtune import _recipe_registry as torchtune_registry

from custom_components.components import describe_nearest
from custom_components.errors import UserError

_TRAINING_CONFIGS = (
    "llama3_8b_grammar",
    "llama3_8b_grammar_qlora",
    "llama3_8b_grammar_qlora_24gb",
    "llama3_8b_instruct",
    "llama3_8b_summarize",
    "smollm2_135m_grammar",
    "smollm2_135m_grammar_qlora",
    "smollm2_135m_instruct",
    "smollm2_135m_summarize",
)

RECIPE_CONFIGS: dict[str, tuple[str, ...]] = {
    "custom_lora": _TRAINING_CONFIGS,
    "custom_data": _TRAINING_CONFIGS,
    "custom_eval": ("smollm2_135m_grammar_eval",),
}
"""Names of the configs that belong to each recipe; the first is the one to start with."""

_ONE_PROCESS = {"custom_data"}
"""Recipes that torchrun may not start."""

_PACKAGE_DIR = Path(__file__).resolve().parent
TORCHTUNE_DIR = Path(torchtune_registry.__file__).parents[1] / "recipes"
"""Where torchtune's built-in recipes lie, with their ``configs/``."""


def recipe_path(name: str) -> Path:
    """Return the file of the pack's recipe ``name``, whether or not it exists."""
    in_checkout = _PACKAGE_DIR.parent / "recipes" / f"{name}.py"
    return in_checkout if in_checkout.is_file() else _PACKAGE_DIR.parent / f"{name}.py"


def is_own_recipe(script: str | Path) -> bool:
    """Return whether a file is one of the pack's recipes, not a copy that someone may change."""
    name = Path(script).stem
    return name in RECIPE_CONFIGS and recipe_path(name).resolve() == Path(script).resolve()


def config_dir() -> Path:
    """Return the folder of the pack's configs."""
    in_wheel = _PACKAGE_DIR / "configs"
    return in_wheel if in_wheel.is_dir() else _PACKAGE_DIR.parent / "configs"


def config_path(name: str) -> Path:
    """Return the file of the pack's config ``name``, whether or not it exists."""
    return config_dir() / f"{name}.yaml"


def recipe_of_config(name: str) -> str | None:
    """Return the name of the pack's recipe that the pack's config ``name`` belongs to."""
    return next((recipe for recipe, names in RECIPE_CONFIGS.items() if name in names), None)


def register() -> None:
    """Put the pack's recipes before torchtune's in its registry. Repeated calls do nothing.

    ``tune ls``, ``cp`` and ``cat`` join the registry's paths to torchtune's folder, and joining
    an absolute path gives that path, so the pack's files need no copy there.
    """
    known = torchtune_registry.get_all_recipes()
    if any(recipe.name in RECIPE_CONFIGS for recipe in known):
        return
    known[:0] = [
        torchtune_registry.Recipe(
            name=recipe,
            file_path=str(recipe_path(recipe)),
            configs=[torchtune_registry.Config(n, str(config_path(n))) for n in configs],
            supports_distributed=recipe not in _ONE_PROCESS,
        )
        for recipe, configs in RECIPE_CONFIGS.items()
    ]


# ---- Looking up ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class RecipeFile:
    """A recipe that can be run.

    Attributes:
        name: Its name in the registry; for a file of the user's, the path as given.
        path: The absolute path of its file.
        supports_distributed: Whether torchrun may start it.
    """

    name: str
    path: Path
    supports_distributed: bool

    @property
    def is_from_pack(self) -> bool:
        """Whether it is one of the pack's own, whose options are known."""
        return self.name in RECIPE_CONFIGS


def find_recipe(text: str) -> RecipeFile:
    """Return the recipe that ``text`` names: a name of the registry or a ``.py`` file.

    Raises:
        UserError: If there is neither, naming the nearest recipe.
    """
    register()
    registered = {
        recipe.name: RecipeFile(
            recipe.name, TORCHTUNE_DIR / recipe.file_path, recipe.supports_distributed
        )
        for recipe in torchtune_registry.get_all_recipes()
    }
    if text in registered:
        return registered[text]
    for candidate in (Path(text), Path(f"{text}.py")):
        if candidate.suffix == ".py" and candidate.is_file():
            name = candidate.stem if is_own_recipe(candidate) else text
            return RecipeFile(name, candidate.resolve(), supports_distributed=True)
    raise UserError(
        f"recipe {text!r} is neither a known name nor a .py file; "
        f"{describe_nearest(Path(text).stem, registered)}; `tune ls` lists all"
    )


def find_config(text: str, recipe: str | None = None) -> Path:
    """Return the absolute path of the config that ``text`` names.

    Args:
        text: A name of the registry (the pack's or torchtune's) or the path of a YAML file. The
            pack's own ``configs/NAME.yaml`` is found from any folder.
        recipe: Name of the recipe whose configs are looked at first.

    Raises:
        UserError: If there is no such config, naming the nearest.
    """
    register()
    recipes = sorted(torchtune_registry.get_all_recipes(), key=lambda r: r.name != recipe)
    registered = {
        config.name: TORCHTUNE_DIR / "configs" / str(config.file_path)
        for known in reversed(recipes)  # the first one wins
        for config in known.configs
    }
    if text in registered and registered[text].is_file():  # torchtune left one out of its wheel
        return registered[text]
    if Path(text).is_file():
        return Path(text).resolve()
    own_name = text.removeprefix("./").removeprefix("configs/").removesuffix(".yaml")
    if recipe_of_config(own_name):
        return config_path(own_name)
    raise UserError(
        f"config {text!r} is neither a known name nor a file; "
        f"{describe_nearest(own_name, registered)}; `tune ls` lists all"
    )
