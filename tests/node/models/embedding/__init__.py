"""Where vectors come from: providers, migrations, and what goes on while one is away."""
