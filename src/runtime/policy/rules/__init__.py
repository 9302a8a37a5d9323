"""The rules of the gate, in the order in which they speak."""

from ..leaf import Rule
from .agents import AgentsRule
from .approval import ApprovalRule
from .arg_schema import ArgSchemaRule
from .arguments import ArgumentsRule
from .cycle_detection import CycleDetectionRule
from .loop_budget import LoopBudgetRule
from .redact import RedactRule
from .resources import ResourcesRule
from .sandbox_path import SandboxPathRule
from .tool_limits import ToolLimitsRule
from .tool_registry import ToolRegistryRule
from .url_allowlist import UrlAllowlistRule

RULES: tuple[Rule, ...] = (
    ToolRegistryRule(),
    UrlAllowlistRule(),
    SandboxPathRule(),
    ArgSchemaRule(),
    ResourcesRule(),
    ArgumentsRule(),
    RedactRule(),
    CycleDetectionRule(),
    ToolLimitsRule(),
    LoopBudgetRule(),
    AgentsRule(),
    ApprovalRule(),
)
