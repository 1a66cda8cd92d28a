# `make demo` shows a real run; `make test` runs the tests. Both set up what they need in .venv.
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
IMAGES ?=

.DEFAULT_GOAL := help
.PHONY: help demo test check images clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*  ## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/.ready  ## set up, then run a recorded agent on the quickstart tasks and show the table
	$(BIN)/agentcompass run quickstart mini_swe_agent recorded --env host_process \
		--model-api-protocol replay \
		--model-params '{"path": "package:agentcompass.adapters.benchmarks.quickstart/recorded"}'

test: $(VENV)/.ready-dev  ## set up, then run every test there is a service for
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.ready-dev  ## lint, format, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports

images: $(VENV)/.ready-dev  ## make the base images of the Docker tests, without a registry
	$(BIN)/python tests/integration/images.py $(IMAGES)

clean:  ## remove what these targets made (results/ stays)
	rm -rf $(VENV) build dist *.egg-info .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.ready: pyproject.toml setup.py .ci/make_venv
	bash .ci/make_venv $(VENV) '.[mini-swe-agent]'
	touch $@

$(VENV)/.ready-dev: pyproject.toml setup.py .ci/make_venv
	bash .ci/make_venv $(VENV) '.[all,dev]'
	touch $(VENV)/.ready $@
