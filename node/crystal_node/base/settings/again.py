"""Settings as ``config.json`` has them by now: for a process that goes on while a person changes them."""

from dataclasses import replace

from crystal_node.base.errors import BadConfig
from crystal_node.base.settings.config import read_config
from crystal_node.base.settings.options import OPTIONS, as_text
from crystal_node.base.settings.resolved import Setting, Settings, SettingSource


def options_again(settings: Settings) -> Settings:
    """These settings with the options of ``options.py`` read again. What a flag or the environment said stays; and all does
    while ``config.json`` cannot be read, which the commands tell."""
    try:
        config = read_config(settings.home.config_file)
        if config == settings.config:
            return settings
        options = dict(settings.options)
        for option in OPTIONS:
            if options[option.name].source not in (SettingSource.CONFIG, SettingSource.DEFAULT):
                continue
            text = as_text(getattr(config, option.name))
            origin = SettingSource.CONFIG if text else SettingSource.DEFAULT
            options[option.name] = Setting(
                option.name, option.check(text or option.default, str(origin)), origin
            )
    except (BadConfig, OSError):
        return settings
    return replace(settings, config=config, options=options)
