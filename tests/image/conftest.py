"""The image under test: `make image-check` builds it and names it in IMAGE_UNDER_TEST; without it these tests skip."""

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def image() -> str:
    name = os.environ.get("IMAGE_UNDER_TEST", "")
    if not name or shutil.which("docker") is None:
        pytest.skip("needs Docker: make image-check builds the image and tries it")
    return name


@pytest.fixture(scope="session")
def pipeline_image() -> str:
    """The image of the Spark job, as named by `make image-pipeline-check`."""
    name = os.environ.get("PIPELINE_IMAGE_UNDER_TEST", "")
    if not name or shutil.which("docker") is None:
        pytest.skip("needs Docker: make image-pipeline-check builds the image of the pipeline and tries it")
    return name
