"""`GeneratorParams` and `Generator`: tokens one by one, under onnxruntime-genai's names."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jitonnx import errors
from jitonnx.api.options import RunOptions
from jitonnx.errors import InvalidArgument
from jitonnx.genai.beams import Beams, GenaiBeams
from jitonnx.genai.decoder import Steps
from jitonnx.genai.encoder import FEATURES
from jitonnx.genai.guidance import Guide, check_kind
from jitonnx.genai.model import Adapters, Model
from jitonnx.genai.search import Random, SearchOptions, choose, penalise
from jitonnx.genai.speculation import Draft, Lookup, Proposer, Speculation, SpeculativeOptions, check, check_draft
from jitonnx.genai.tensors import NamedTensors, Tensor
from jitonnx.genai.vision import UNREAD

_LEAST_COLUMNS = 128
"""The least columns of the memory for tokens."""


class GeneratorParams:
    """How tokens are chosen: what the model's configuration says of `search`, and what is set here."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.options = SearchOptions()
        for name, value in model.config.section("search").items():
            if value is not None:
                try:
                    self.options.set(name, value)
                except InvalidArgument as error:
                    raise InvalidArgument(f"{model.config.name('search', name)}: {error.text}") from error
        self.options.max_length = self.options.max_length or model.context_length
        self.guidance: tuple[str, str] | None = None
        """What constrains the output. (Not in onnxruntime-genai.)"""
        self.speculative = SpeculativeOptions()
        """How tokens are proposed. (Not in onnxruntime-genai.)"""
        self.draft: Model | None = None
        self.beams: type[Beams] = GenaiBeams
        """How beams are searched. (Not in onnxruntime-genai.)"""

    def set_search_options(self, **options: Any) -> None:
        """Set options by names (`SearchOptions`). InvalidArgument for unknown ones and wrong types."""
        for name, value in options.items():
            self.options.set(name, value)

    def check(self) -> None:
        """InvalidArgument for options that do not go together, or with the model. NotImplemented for beams with what
        they do not go with yet. (Not in onnxruntime-genai.)"""
        options = self.options
        options.check(self.model.context_length, self.model.decoder.vocabulary)
        if options.num_beams == 1:
            return
        if options.early_stopping == "never" and self.beams is GenaiBeams:
            raise InvalidArgument("early_stopping is 'never': True or False is needed, as onnxruntime-genai has it")
        for what, is_set in (
            ("output that is constrained (set_guidance)", self.guidance is not None),
            ("speculative decoding", self.draft is not None or self.speculative.ngram_size > 0),
        ):
            if is_set:
                raise errors.NotImplemented(f"{what} does not go with beam search: set num_beams to 1")

    def get_search_options(self) -> dict[str, Any]:
        """The options by names."""
        return dataclasses.asdict(self.options)

    def set_guidance(self, type: str, data: str, enable_ff_tokens: bool = False) -> None:
        """Constrain what is generated: type is "json_schema", "regex" or "lark_grammar"; "": nothing is constrained.

        enable_ff_tokens: accepted without effect; tokens that the constraint leaves no choice of are generated one by
        one. InvalidArgument for another type.
        """
        if type or data:
            check_kind(type)
        self.guidance = (type, data) if type else None

    def set_speculative_options(self, **options: Any) -> None:
        """Set options of speculative decoding by names (`SpeculativeOptions`). InvalidArgument for unknown ones and
        values that are none."""
        for name, value in options.items():
            self.speculative.set(name, value)

    def get_speculative_options(self) -> dict[str, Any]:
        """The options of speculative decoding by names."""
        return dataclasses.asdict(self.speculative)

    def set_draft_model(self, model: Model) -> None:
        """Have a smaller model of the same tokens propose tokens. (Not in onnxruntime-genai.)

        InvalidArgument for a model of other tokens; NotImplemented for one that cannot be rewound.
        """
        check_draft(model, self.model)
        self.draft = model


class Generator:
    """Sequences that grow by a token a step.

    Sequences are given with `append_tokens`, which runs the model; `generate_next_token` chooses by the last logits,
    after having run the model on what it chose before. All sequences of a batch are given at once, with padding behind
    the shorter ones.
    """

    def __init__(self, model: Model, params: GeneratorParams) -> None:
        """InvalidArgument for options that do not go together, and for what is no constraint; NotImplemented for beams
        with what they do not go with yet; ImportError for a constraint without the package `llguidance`."""
        self.model = model
        self.options = options = dataclasses.replace(params.options)
        params.check()
        self._random = Random(options.random_seed)
        self._guides = self._guided(params)
        self._speculation = self._speculated(params, None)
        self._behind: np.ndarray | None = None
        """The logits behind the last token, where it was read before it was chosen."""
        self._steps = Steps(
            model.decoder, options.batch_size, in_place=options.past_present_share_buffer, limit=options.max_length
        )
        rows = options.batch_size * options.num_beams
        self._tokens = np.zeros((rows, _LEAST_COLUMNS), np.int32)
        self._length = 0
        self._next = np.zeros(rows, np.int32)
        """The tokens that were chosen or appended last."""
        self._logits: np.ndarray | None = None
        """Float32 [rows, vocabulary] of what comes next; None: the last tokens are not read yet."""
        self._ended = np.zeros(options.batch_size, bool)
        self._pad = model.config.number("model", "pad_token_id")
        self._adapters: Adapters | None = None
        self._kind = params.beams
        self._beams: Beams | None = None
        """What searches, once there is a prompt, if there are beams."""
        self._sources: np.ndarray | None = None
        """The beams that those at hand go on from, where the caches still are those of before."""

    # ------------------------------------------------------------ what is there

    def token_count(self) -> int:
        """The length of the sequences."""
        return self._length

    def get_sequence(self, index: int) -> np.ndarray:
        """The tokens of a sequence, int32, its prompt included. The token by which the last of the sequences ended is
        not among them. InvalidArgument for a sequence that is not there.

        Of beams there are num_return_sequences for each prompt, the best ones first, none with the token that ended it;
        those that have not ended do so with the first call.
        """
        options = self.options
        if not 0 <= index < options.batch_size * options.num_return_sequences:
            of_beams = f", num_return_sequences {options.num_return_sequences}" if options.num_beams > 1 else ""
            raise InvalidArgument(f"there is no sequence {index}: batch_size is {options.batch_size}{of_beams}")
        if self._beams is not None:
            return self._beams.sequence(index, self._tokens[:, : self._length])
        return self._tokens[index, : self._length].copy()

    def get_next_tokens(self) -> np.ndarray:
        """The tokens that were chosen last, int32 [batch * num_beams]; padding for sequences that had ended before."""
        return self._next.copy()

    def is_done(self) -> bool:
        """Whether each sequence has ended, by a token that says so or by max_length."""
        if self._logits is not None:
            return False
        if self._beams is not None and self._beams.is_done:
            return True
        return bool(self._ended.all()) or self._length >= self.options.max_length

    def get_logits(self) -> np.ndarray:
        """The logits that the next tokens are chosen by, float32 [batch * num_beams, 1, vocabulary]."""
        return self._computed()[:, None].copy()

    def set_logits(self, logits: np.ndarray) -> None:
        """Have the next tokens chosen by other logits, of the shape of `get_logits`, or without its 1."""
        given, width, rows = np.array(logits, np.float32), self.model.decoder.vocabulary, len(self._tokens)
        if given.size != rows * width:
            raise InvalidArgument(f"logits have shape {list(given.shape)}: [{rows}, {width}] is needed")
        if self._unread > 0:
            self._computed()
        self._forget_ahead()
        self._logits = given.reshape(rows, width)

    def get_output(self, name: str) -> np.ndarray:
        """An output of the last run, by its name, of memory that the next run writes to. InvalidArgument for an unknown
        one, and before the first run."""
        return self._of_beams(name, self._steps.get_output(name))

    def get_input(self, name: str) -> np.ndarray:
        """An input of the last run, by its name. InvalidArgument for an unknown one."""
        return self._of_beams(name, self._steps.get_input(name))

    # ------------------------------------------------------------ steps

    def append_tokens(self, tokens: Any) -> None:
        """Append tokens to the sequences and run the model on them.

        tokens: int32 [tokens], [batch, tokens], or the rows of a batch one behind the other. InvalidArgument for none,
        for tokens that the model does not have, for more than max_length, and for a batch or beams that have tokens
        already.
        """
        given = np.asarray(tokens.as_numpy() if isinstance(tokens, Tensor) else tokens)
        batch = self.options.batch_size
        if not given.size or given.dtype.kind not in "iu":
            what = "input_ids is empty" if not given.size else f"input_ids are {given.dtype}: whole numbers are needed"
            raise InvalidArgument(what)
        if given.size % batch:
            raise InvalidArgument(f"{given.size} tokens do not divide among batch_size ({batch}) sequences")
        rows = given.reshape(batch, -1)
        beams = self.options.num_beams
        if self._beams is not None:
            raise InvalidArgument(
                "append_tokens can only be called once for num_beams > 1: make another Generator for other tokens"
            )
        if self._length and batch > 1:
            raise InvalidArgument(
                "append_tokens can only be called once for batch_size > 1. To call it again, use rewind_to(0)"
            )
        count = rows.shape[1]
        if self._length + count > self.options.max_length:
            raise InvalidArgument(
                f"input_ids size ({count}) + current sequence length ({self._length}) exceeds max length "
                f"({self.options.max_length}): set max_length, up to the model's context_length "
                f"({self.model.context_length}), or shorten the prompt"
            )
        prompts = self._steps.prompts
        self.model.check_tokens(rows, images=0 if prompts is None else prompts.placeholders)
        self._forget_ahead()
        if prompts is not None:
            if beams > 1 and prompts.has_images:
                raise errors.NotImplemented("beams do not go on from prompts with images: set num_beams to 1")
            prompts.append(rows[0], self._length)
        self._put(np.repeat(rows, beams, 0))
        self._next = self._tokens[:, self._length - 1].copy()
        self._ended[:] = False
        for guide in self._guides:
            guide.restart()
        try:
            logits = self._read()
        except BaseException:  # Ctrl-C, too: the sequences are as they were
            self._length = max(self._length - count, 0)
            if prompts is not None:
                prompts.cut(self._length)
            raise
        self._logits = logits
        if beams > 1:
            self._logits = np.repeat(logits, beams, 0)
            self._beams = self._kind(self.options, self.model.ends, self._pad, count)

    def generate_next_token(self) -> None:
        """Choose the next token of each sequence; padding for those that have ended.

        InvalidArgument if there is nothing to go on from, or at max_length.
        """
        if not self._length and (self._logits is None or self.options.num_beams > 1):
            raise InvalidArgument("generate_next_token has nothing to go on from: call append_tokens before")
        if self._length >= self.options.max_length:
            raise InvalidArgument(f"the sequences are at max_length ({self.options.max_length}) already")
        if self._beams is not None:
            self._generate_beams(self._beams)
            return
        if self._logits is None and self._ended.all():
            self._next[:] = self._pad
            return
        logits, options = self._computed(), self.options
        if options.changes_logits:
            penalise(logits, [row[: self._length] for row in self._tokens], options, self.model.ends)
        for row, guide, ended in zip(logits, self._guides, self._ended, strict=False):
            if not ended:
                guide.mask(row)
        chosen = choose(logits, options, self._random, self._ended)
        for token, guide, ended in zip(chosen.tolist(), self._guides, self._ended, strict=False):
            if not ended:
                guide.accept(token)
        self._logits = None
        if self._ended.any():
            chosen[self._ended] = self._pad
        for end in self.model.ends:
            self._ended |= chosen == end
        self._next = chosen
        is_ended = bool(self._ended.all())
        if not is_ended:
            self._put(chosen[:, None])
        if self._speculation is not None:
            self._behind = self._speculation.chosen(None if is_ended else int(chosen[0]))
            if self._behind is None:
                self._steps.shorten(self._length - (not is_ended))

    def _generate_beams(self, beams: Beams) -> None:
        """Choose the next token of each beam; padding if enough of all sequences have ended."""
        if self._logits is None and beams.is_done:
            self._next = np.full(len(self._tokens), self._pad, np.int32)
        else:
            beams.choose(self._computed(), self._tokens[:, : self._length])
            self._logits, self._sources, self._next = None, beams.sources, beams.tokens.copy()
            self._tokens[:, : self._length] = self._tokens[beams.sources, : self._length]
        self._put(self._next[:, None])

    def _regroup(self) -> None:
        """Have the caches be those of the beams at hand. A prompt is read once for all of its beams."""
        if self._sources is None:
            return
        try:
            if self._steps.batch != len(self._tokens):
                self._steps.spread(self.options.num_beams)
            self._steps.pick(self._sources)
        except BaseException:  # Ctrl-C, too: what the caches hold is not known any more
            self._length = 0
            raise
        self._sources = None

    def _of_beams(self, name: str, array: np.ndarray) -> np.ndarray:
        """An input or output for all beams, also where a prompt was read once for them."""
        axis, times = self.model.decoder.batch_axes.get(name), len(self._tokens) // self._steps.batch
        return array if axis is None or times == 1 else np.repeat(array, times, axis)

    def rewind_to(self, new_length: int) -> None:
        """Forget what comes behind the first tokens.

        The next token that is generated is the one behind them. InvalidArgument for more than there are, for
        batches of several unless to 0; NotImplemented for beams, and for a model that has forgotten what it needs.
        """
        if not 0 <= new_length <= self._length:
            raise InvalidArgument(
                f"Cannot rewind to {new_length}: the sequence has {self._length} tokens, and so many at most are kept"
            )
        if new_length == self._length:
            return
        if self.options.num_beams > 1:
            raise errors.NotImplemented("rewind_to is not supported with beam search: make another Generator")
        if self.options.batch_size > 1 and new_length:
            raise InvalidArgument("rewind_to must be called with 0 where batch_size > 1")
        if not self.can_rewind(new_length):
            raise errors.NotImplemented(
                f"Cannot rewind to {new_length} of {self._length} tokens: the model's states or windows no longer hold "
                "what was there; rewind to 0 and append the tokens again"
            )
        self._forget_ahead()
        # The last token is read again, for its logits.
        self._steps.rewind(max(new_length - 1, 0))
        if self._steps.prompts is not None:
            self._steps.prompts.cut(new_length)
        for guide in self._guides:
            guide.rewind(self._length - new_length)
        self._length = new_length
        self._next = self._tokens[:, max(new_length - 1, 0)].copy()
        self._ended[:], self._logits = False, None

    def can_rewind(self, new_length: int) -> bool:
        """Whether `rewind_to` can. (Not in onnxruntime-genai.)"""
        return self._steps.caches.can_rewind(self._steps.width, max(new_length - 1, 0))

    # ------------------------------------------------------------ once more

    def is_alike(self, params: GeneratorParams) -> bool:
        """Whether `restart` can take these options: what memory there is does not depend on others. (Not in
        onnxruntime-genai.)"""
        return all(
            getattr(self.options, name) == getattr(params.options, name)
            for name in ("batch_size", "num_beams", "past_present_share_buffer")
        )

    def restart(self, params: GeneratorParams, tokens: np.ndarray, inputs: NamedTensors | None = None) -> int:
        """Go on from other tokens [tokens], with other options that are alike; how many of the tokens were there.

        inputs: what a processor makes of the tokens' images. Those that the sequence began with are not read again,
        where the model takes tokens behind others, and images are the same. (Not in onnxruntime-genai.)
        """
        params.check()
        same, prompts = 0, self._steps.prompts
        given = {name: value.as_numpy() for name, value in (inputs or {}).items() if name != "input_ids"}
        if self.options.past_present_share_buffer:
            count = min(self._length, len(tokens) - 1)
            differing = self._tokens[0, :count] != tokens[:count]
            same = int(differing.argmax()) if differing.any() else count
            if not self.can_rewind(same) or not (prompts is None or prompts.are_of(tokens, given)):
                same = 0
        self.options = dataclasses.replace(params.options)
        self._random, self._guides = Random(self.options.random_seed), self._guided(params)
        self._forget_ahead()
        self._speculation = self._speculated(params, self._speculation)
        segments = [] if prompts is None else prompts.segments
        self.rewind_to(same)
        if same and prompts is not None:
            prompts.segments = segments  # also of tokens that are appended again
        if same or inputs is None:
            self.append_tokens(tokens[same:])
        else:
            self.set_inputs(inputs)
        return same

    def _guided(self, params: GeneratorParams) -> list[Guide]:
        """What constrains each sequence; none where nothing does."""
        if params.guidance is None:
            return []
        return [Guide(self.model, *params.guidance) for _ in range(self.options.batch_size)]

    # ------------------------------------------------------------ more

    def set_model_input(self, name: str, value: np.ndarray) -> None:
        """Set an input of the model that is neither tokens nor a cache: of audio (`audio_features`) what its encoder
        makes; one of its vision model for the tokens that are appended next. InvalidArgument for an unknown one."""
        encoder, array = self.model.encoder, np.asarray(value)
        if encoder is None or not encoder.features or name not in (FEATURES, encoder.features):
            self._steps.set_extra(name, array)
            return
        if len(array) != self.options.batch_size:
            raise InvalidArgument(
                f"{name} has shape {list(array.shape)}, and batch_size is {self.options.batch_size}: set it to "
                "the number of sounds"
            )
        for extra, given in encoder.listen(array).items():
            self._steps.set_extra(extra, given)

    def set_inputs(self, inputs: NamedTensors) -> None:
        """Set inputs by names; `input_ids` are appended. InvalidArgument as `set_model_input`."""
        try:
            for name, value in inputs.items():
                if name != "input_ids" and (name not in UNREAD or name in self.model.decoder.extras):
                    self.set_model_input(name, value.as_numpy())
            if "input_ids" in inputs:
                self.append_tokens(inputs["input_ids"])
        except BaseException:
            if self._steps.prompts is not None:
                self._steps.prompts.clear()
            raise

    def set_active_adapter(self, adapters: Adapters, name: str) -> None:
        """Have runs use an adapter. InvalidArgument for an unknown one, and for another container of adapters."""
        if self._adapters not in (None, adapters):
            raise InvalidArgument("a generator takes adapters of one Adapters object")
        self._adapters = adapters
        self._options_of_runs().add_active_adapter(adapters.named(name))

    def set_runtime_option(self, key: str, value: str) -> None:
        """Set an entry of the options of runs."""
        if key == "terminate_session":
            self._options_of_runs().terminate = value == "1"
        else:
            self._options_of_runs().add_run_config_entry(key, value)

    def snapshot_state(self) -> None:
        """Accepted, without effect: `rewind_to` needs no snapshot, and models with states cannot be rewound."""

    def set_hidden_states(self, hidden_states: np.ndarray) -> None:
        """NotImplemented, always."""
        raise errors.NotImplemented("heads that predict several tokens (set_hidden_states) are not implemented")

    def get_speculative_stats(self) -> dict[str, Any]:
        """How many tokens were proposed, and how many of them chosen; nothing where none are proposed."""
        return self._speculation.stats() if self._speculation is not None else {}

    def _options_of_runs(self) -> RunOptions:
        if self._steps.run_options is None:
            self._steps.run_options = RunOptions()
        found: RunOptions = self._steps.run_options
        return found

    def _put(self, rows: np.ndarray) -> None:
        """Append tokens to the sequences."""
        end = self._length + rows.shape[1]
        if end > self._tokens.shape[1]:
            more = np.zeros((len(self._tokens), max(end - self._tokens.shape[1], self._tokens.shape[1])), np.int32)
            self._tokens = np.concatenate([self._tokens, more], 1)
        self._tokens[:, self._length : end] = rows
        self._length = end

    def _computed(self) -> np.ndarray:
        """The logits for the next tokens."""
        if self._logits is None and self._behind is not None:
            self._logits, self._behind = self._behind, None
        if self._logits is None:
            if not self._unread:
                what = "the sequences have ended" if self._length else "there are no logits yet"
                raise InvalidArgument(f"{what}: call append_tokens before")
            self._regroup()
            self._logits = self._read() if self._speculation is None else self._read_ahead(self._speculation)
        return self._logits

    def _speculated(self, params: GeneratorParams, held: Speculation | None) -> Speculation | None:
        """What proposes tokens; None where nothing does. held: that of before, whose model may have read what comes.

        NotImplemented for what tokens cannot be proposed for.
        """
        options = params.speculative
        if params.draft is None and not options.ngram_size:
            return None
        check(self.model.decoder, self.options.batch_size)
        proposer: Proposer = Lookup(options.ngram_size)
        if params.draft is not None:
            before = held.proposer if held is not None else None
            is_same = isinstance(before, Draft) and before.model is params.draft
            proposer = before if is_same and before is not None else Draft(params.draft)
        return Speculation(proposer, options.max_draft_tokens)

    def _read_ahead(self, speculation: Speculation) -> np.ndarray:
        """Run the model on the last token and on those that are proposed behind it; the logits behind the last one."""
        if self._unread != 1:
            return self._read()
        before, tokens = self._steps.width, self._tokens[0, : self._length]
        draft = speculation.propose(tokens, self.options.max_length - self._length - 1)
        read = np.concatenate([tokens[-1:], draft])[None]
        try:
            logits = self._steps.read_kept(read, np.arange(read.shape[1])[None])[0]
        except BaseException:
            self._steps.rewind(before)
            raise
        speculation.begin(draft, logits[1:])
        first: np.ndarray = logits[:1]
        return first

    def _forget_ahead(self) -> None:
        """Forget what was read of tokens that are not chosen."""
        if self._speculation is not None:
            self._speculation.begin(self._next[:0], np.zeros((0, 0), np.float32))
            self._behind = None
            self._steps.shorten(self._length)

    @property
    def _unread(self) -> int:
        """How many of the last tokens the model has not read: one, if it was chosen."""
        return self._length - self._steps.width

    def _read(self) -> np.ndarray:
        """Run the model on the tokens that it has not read, in pieces of chunk_size; the logits behind them.

        Where a run fails or is ended, what it may have written is forgotten, and read again the next time.
        """
        before, count = self._steps.width, self._unread
        tokens = self._tokens[:: len(self._tokens) // self._steps.batch, before : self._length]
        counts = None
        if len(tokens) > 1 and before == 0:  # padding is behind the last token that is none
            is_token = tokens != self._pad
            if not is_token[:, -1].all():
                counts = np.where(is_token.any(1), count - is_token[:, ::-1].argmax(1), 0)
        piece, begin = self.options.chunk_size if counts is None else 0, 0
        try:
            while piece and count - begin > piece:
                self._steps.read(tokens[:, begin : begin + piece])
                begin += piece
            return self._steps.read(tokens[:, begin:], counts)
        except BaseException:
            self._steps.rewind(before if self._steps.caches.only_grow else 0)
            if len(tokens) > 1 and self._steps.width == 0:  # where padding was is not known any more
                self._length = 0
            raise
