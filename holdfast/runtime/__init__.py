"""What touches the machine: settings, logs, users' modules, the embedded stack. Workflows never import it."""
