"""The IR: one graph of UOps at every level, from tensors to machine loops.

This is the face of the package: other packages import from here and not from its modules.
"""

from morok.ir.capability import Capability, Compiler, Renderer
from morok.ir.checks import check_node
from morok.ir.fields import FIELD_NAMES, fields_of
from morok.ir.ops import (
    AddrSpace,
    AxisId,
    AxisType,
    BufferizeOpts,
    CallInfo,
    CustomFunctionKind,
    DeviceSpec,
    Estimates,
    Invalid,
    InvalidType,
    KernelInfo,
    Ops,
    ReduceOp,
    WmmaMetadata,
    WmmaUpcastAxes,
)
from morok.ir.optable import OPS, Category, GroupOp, OpSpec, SourceField
from morok.ir.uop import UOp, register_simplifier

__all__ = [
    "FIELD_NAMES",
    "OPS",
    "AddrSpace",
    "AxisId",
    "AxisType",
    "BufferizeOpts",
    "CallInfo",
    "Capability",
    "Category",
    "Compiler",
    "CustomFunctionKind",
    "DeviceSpec",
    "Estimates",
    "GroupOp",
    "Invalid",
    "InvalidType",
    "KernelInfo",
    "OpSpec",
    "Ops",
    "ReduceOp",
    "Renderer",
    "SourceField",
    "UOp",
    "WmmaMetadata",
    "WmmaUpcastAxes",
    "check_node",
    "fields_of",
    "register_simplifier",
]
