"""What tests of an agent need, ours and yours. So far: the scripted LLM, `holdfast.testing.scripted_llm`."""
