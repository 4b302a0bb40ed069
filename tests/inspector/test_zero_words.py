"""What a refusal of ZeroGPU is called, and how a worker is told to stop."""

import gradio as gr
import pytest

from inspector.space.zero import FileControl, zero_gpu_error_text


@pytest.mark.parametrize(
    ("title", "what"),
    [("ZeroGPU illegal duration", "more GPU time than one call"),
     ("ZeroGPU quota exceeded", "ZeroGPU quota does not suffice"),
     ("ZeroGPU pending credits exceeded", "use all the credits"),
     ("ZeroGPU queue timeout", "free within a minute"),
     ("ZeroGPU worker error", "worker ended"), ("ZeroGPU client error", "could not accept")],
)  # fmt: skip
def test_every_refusal_of_the_package_has_its_words(title, what):
    said = zero_gpu_error_text(gr.Error("Text of theirs.", title=title))
    assert what in said
    assert "Text of theirs. Lower steps" in said
    assert "failed" in zero_gpu_error_text(OSError("broken pipe"))


def test_a_flag_that_is_gone_stops(tmp_path):
    flag = FileControl(tmp_path / "go")
    assert (flag.state, flag.take_turn()) == ("stopped", False)
    (tmp_path / "go").touch()
    assert (flag.state, flag.take_turn()) == ("running", True)
