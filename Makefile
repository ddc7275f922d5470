# make example | test | bench | lint | sanitize: each makes what it needs, the second run is quick.
PYTHON ?= python3
JOBS ?= $(shell nproc)
# Each takes some GiB of memory.
TEST_PROCESSES ?= 2

MAIN := .venv
MERLIN := .venv-merlin
TF_KERAS := .venv-tf-keras
PEERS := .venv-peers
CUDA := .venv-cuda
PY := $(MAIN)/bin/python
PY_MERLIN := $(MERLIN)/bin/python
PY_TF_KERAS := $(TF_KERAS)/bin/python
OPS := merlin_embeddings/_ops

MAKEFLAGS += --no-print-directory
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# For the CMake that pip starts.
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export TF_CPP_MIN_LOG_LEVEL ?= 2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help environments cuda example example-merlin example-streaming example-youtube test \
        test-core test-merlin test-python test-tf-keras bench bench-criteo lint format sanitize build clean

help:
	@echo "make example   train on MovieLens and show what comes out"
	@echo "make example-merlin   DLRM of merlin-models with its own tables and with ours"
	@echo "make example-youtube  users as their items' vectors, beside a table of users"
	@echo "make example-streaming  ids that never stop coming: each policy at a tenth of the rows"
	@echo "make test      C++ and Python tests, on TensorFlow 2.21 and 2.12"
	@echo "make bench     compare with fbgemm, torch, torchrec and Keras (QUICK=1: the short one);"
	@echo "               the page is build/bench/report.html"
	@echo "make bench-criteo  train DLRM on click logs like Criteo's (QUICK=1: the short one)"
	@echo "make lint      style, types, who may import whom"
	@echo "make sanitize  the C++ core under address, undefined-behaviour and thread sanitizers"
	@echo "make cuda      compile the CUDA twins of the core for sm_80 and sm_90 (no GPU is needed)"
	@echo "make build     the op library into the checkout"
	@echo "make format    format Python and C++"
	@echo "make clean     remove what was built, not the environments"

# --- Environments ------------------------------------------------------------------------------

# $(call debian,test,packages): installs the packages if the test fails and we are root.
define debian
	@$(1) >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $(2)"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get install -qq -y --no-install-recommends $(2) || \
	      { apt-get update -qq && apt-get install -qq -y --no-install-recommends $(2); }; \
	    } </dev/null >/dev/null; \
	  else \
	    echo "missing: please run  sudo apt-get install $(2)" >&2; exit 1; \
	  fi; }
endef

%/bin/python:
	$(call debian,$(PYTHON) -c 'import ensurepip$(,) venv',python3-venv)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || \
	  { echo "Python 3.11 or later is needed: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $*

# One after the other: what makes the first may have to install a package.
$(PY_MERLIN) $(PY_TF_KERAS): | $(PY)

# All that `test` and `lint` need; with -j 2 in little more than the time of one.
environments: $(MAIN)/.pins-lint $(MERLIN)/.pins $(TF_KERAS)/.pins $(CUDA)/.pins

# A stamp says which pins an environment holds; existing environments are brought up to date.
$(MAIN)/.pins: requirements/build.txt requirements/main.txt requirements/test.txt \
               requirements/nvtabular.txt requirements/example.txt | $(PY)
	$(PY) -m pip install -q -r requirements/main.txt -r requirements/test.txt \
	  -r requirements/nvtabular.txt -r requirements/example.txt
	@touch $@

$(MAIN)/.pins-lint: requirements/lint.txt | $(MAIN)/.pins
	$(PY) -m pip install -q -r requirements/lint.txt
	@touch $@

$(MERLIN)/.pins: requirements/build.txt requirements/test.txt \
                requirements/merlin.txt | $(PY_MERLIN)
	$(PY_MERLIN) -m pip install -q -r requirements/merlin.txt
	@touch $@

# merlin-models on TensorFlow 2.21: on top of the packages of the main environment, whose TensorFlow
# and op library it shares. tf-keras asks for `tensorflow`, which is `tensorflow-cpu` here.
SITE_PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))
$(TF_KERAS)/.pins: requirements/tf-keras.txt requirements/tf-keras-nodeps.txt $(MAIN)/.pins \
                  | $(PY_TF_KERAS)
	$(PY) -c '$(SITE_PACKAGES)' >"$$($(PY_TF_KERAS) -c '$(SITE_PACKAGES)')/main.pth"
	$(PY_TF_KERAS) -m pip install -q -r requirements/tf-keras.txt
	$(PY_TF_KERAS) -m pip install -q --no-deps -r requirements/tf-keras-nodeps.txt
	@touch $@

$(PEERS)/.pins: requirements/peers.txt requirements/peers-nodeps.txt | $(PEERS)/bin/python
	$(PEERS)/bin/python -m pip install -q -r requirements/peers.txt
	$(PEERS)/bin/python -m pip install -q --no-deps -r requirements/peers-nodeps.txt
	@touch $@

$(CUDA)/.pins: requirements/cuda.txt | $(CUDA)/bin/python
	$(CUDA)/bin/python -m pip install -q -r requirements/cuda.txt
	@touch $@

# --- The op library ----------------------------------------------------------------------------

# CMake decides what is out of date; its own stamp only says that it was configured.
build/ops/CMakeCache.txt: $(MAIN)/.pins
	cmake -S ops -B build/ops -DPython_EXECUTABLE=$(abspath $(PY)) \
	  -DMERLIN_OUTPUT_DIR=$(CURDIR)/$(OPS)
	@touch $@

build: build/ops/CMakeCache.txt
	@cmake --build build/ops -j $(JOBS)

# The merlin lane gets an installed package: the way users get theirs.
PACKAGE := setup.cfg pyproject.toml README.md LICENSE $(wildcard ops/CMakeLists.txt ops/*/*) \
           $(shell find merlin_embeddings -name '*.py' -o -name py.typed 2>/dev/null)

$(MERLIN)/.installed: $(MERLIN)/.pins $(PACKAGE)
	rm -rf build/lib* build/bdist*
	$(PY_MERLIN) -m pip install -q --no-build-isolation --no-deps --force-reinstall .
	@touch $@

# --- Targets -----------------------------------------------------------------------------------

example: build
	PYTHONPATH=$(CURDIR) $(PY) examples/movielens.py

# An installed package, as in a Merlin container.
example-merlin: $(MERLIN)/.installed
	$(PY_MERLIN) examples/merlin_dlrm.py

example-youtube: build
	PYTHONPATH=$(CURDIR) $(PY) examples/youtube_dnn.py

example-streaming: build
	PYTHONPATH=$(CURDIR) $(PY) examples/streaming_ids.py

# The closing line of the main run comes last.
test: build
	@$(MAKE) test-core
	@$(MAKE) test-merlin
	@$(MAKE) test-tf-keras
	@$(MAKE) test-python

# A comparison with merlin-models starts the merlin lane's interpreter.
test-python: build $(MERLIN)/.pins
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

test-merlin: $(MERLIN)/.installed
	$(MERLIN)/bin/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder tests/merlin \
	  tests/optimizers/test_fusion.py tests/optimizers/test_split.py tests/optimizers/test_refusals.py \
	  tests/saving/test_resume.py tests/saving/test_callback.py

# What models of merlin-models do is tested on both.
BOTH_MERLIN_LANES := tests/merlin/test_embedding_table_in_models.py

test-tf-keras: build $(TF_KERAS)/.pins
	TF_USE_LEGACY_KERAS=1 PYTHONPATH=$(CURDIR) $(PY_TF_KERAS) -m pytest \
	  -p merlin_embeddings.merlin.compat tests/tf_keras $(BOTH_MERLIN_LANES)

# $(call core,folder,options,prefix): builds the C++ tests, which need no TensorFlow, and runs them
# with each instruction set.
define core
	$(call debian,test -e /usr/include/gtest/gtest.h,libgtest-dev)
	@cmake -S ops -B $(1) -DMERLIN_TENSORFLOW=OFF -DMERLIN_TESTS=ON $(2) >/dev/null
	@cmake --build $(1) -j $(JOBS)
	@for isa in baseline avx2 avx512; do \
	  echo "$(1)/core_tests, $$isa"; \
	  MERLIN_EMBEDDINGS_ISA=$$isa $(3) $(1)/core_tests --gtest_brief=1 || exit 1; \
	done
endef

test-core:
	$(call core,build/core)

# Thread sanitizers of this age don't know the widest randomisation of addresses: switched off
# where that is allowed.
sanitize:
	$(call core,build/asan,-DMERLIN_SANITIZE=address$(,)undefined)
	$(call core,build/tsan,-DMERLIN_SANITIZE=thread,$$(setarch -R true 2>/dev/null && echo setarch -R))

# A library of its own: TensorFlow isn't needed. Where there is a GPU, tests/cuda runs it.
CUDA_LIBRARY := build/cuda/libmerlin_cuda.so
cuda: $(CUDA_LIBRARY)

$(CUDA_LIBRARY): $(CUDA)/.pins $(wildcard ops/cuda/*) $(wildcard ops/core/id_*) \
                 ops/core/counting_filter.h ops/core/types.h
	@mkdir -p $(@D)
	home=$$(echo $(CUDA)/lib/python3*/site-packages/nvidia/cu13) && \
	  PATH=$$home/bin:$$PATH nvcc -std=c++17 -O3 -shared -Xcompiler -fPIC,-ffp-contract=off \
	    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 \
	    -Iops -I$$home/include -I$$home/include/cccl -L$$home/lib -o $@ \
	    ops/cuda/id_table.cu ops/cuda/host.cc ops/core/id_*.cc

bench: build $(PEERS)/.pins
	PYTHONPATH=$(CURDIR) $(PY) benchmarks/lookup.py --json build/bench/results.json \
	  --html build/bench/report.html $(BENCH_ARGS)

bench-criteo: build
	PYTHONPATH=$(CURDIR) $(PY) benchmarks/criteo_like.py $(BENCH_ARGS)

CXX_FILES = $(wildcard ops/*/*.h ops/*/*.cc ops/*/*.cu benchmarks/*.cc)

lint: $(MAIN)/.pins-lint
	$(MAIN)/bin/ruff check .
	$(MAIN)/bin/ruff format --check .
	$(MAIN)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	$(MAIN)/bin/mypy
	$(MAIN)/bin/lint-imports

format: $(MAIN)/.pins-lint
	$(MAIN)/bin/ruff check --fix .
	$(MAIN)/bin/ruff format .
	$(MAIN)/bin/clang-format -i $(CXX_FILES)

clean:
	rm -rf build $(OPS) *.egg-info

# A comma that `call` doesn't take for the end of an argument.
, := ,
