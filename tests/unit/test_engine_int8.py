"""Linear layers in 8 bits and in oneDNN's layout: near enough, and the same in any company."""

import torch

from workers.engine.int8 import Int8Linear
from workers.engine.tuning import PackedLinear, PatchProjection


def layer(*, bias: bool) -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(96, 40, bias=bias)


@torch.no_grad()
def test_eight_bits_are_within_two_percent() -> None:
    tokens = torch.randn(1, 600, 96) * torch.rand(600, 1)
    for bias in (True, False):
        right = layer(bias=bias)(tokens)
        assert (Int8Linear(layer(bias=bias))(tokens) - right).norm() < 0.02 * right.norm()


@torch.no_grad()
def test_a_token_gets_the_same_whoever_shares_its_step() -> None:
    tokens = torch.cat([torch.randn(1, 96), 1000 * torch.randn(299, 96)])
    eight_bits = Int8Linear(layer(bias=True))
    assert torch.equal(eight_bits(tokens)[:1], eight_bits(tokens[:1]))


@torch.no_grad()
def test_the_other_layout_computes_the_same() -> None:
    tokens = torch.randn(2, 3, 96)
    for bias in (True, False):
        torch.testing.assert_close(PackedLinear(layer(bias=bias))(tokens), layer(bias=bias)(tokens))


@torch.no_grad()
def test_patches_are_projected_as_by_the_convolution() -> None:
    convolution = torch.nn.Conv3d(3, 8, (2, 4, 4), (2, 4, 4))
    patches = torch.randn(5, 3, 2, 4, 4)
    torch.testing.assert_close(PatchProjection(convolution)(patches), convolution(patches).flatten(1))
