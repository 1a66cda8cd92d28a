"""AgentCompass."""
