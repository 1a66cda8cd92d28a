"""Map src/ to the import package `agentcompass`, and config/ to `agentcompass.config`."""

from setuptools import find_packages, setup

setup(
    packages=["agentcompass", "agentcompass.config", *(f"agentcompass.{name}" for name in find_packages("src"))],
    package_dir={"agentcompass": "src", "agentcompass.config": "config"},
    package_data={
        "agentcompass": ["py.typed", "adapters/benchmarks/quickstart/**/*"],
        "agentcompass.config": ["defaults.yaml"],
    },
    include_package_data=False,
)
