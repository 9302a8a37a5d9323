"""Two static policies for each AgentDojo suite: without lists of values, and with them.

Written from the names, descriptions and schemas of a suite's tools; nothing in them is taken from an injection.
Two things stand in no description and come from the suite's own world: which sites its people use (`sites`), and
which of the tools that act are daily work, so that nobody can be asked each time (`acts`, not `asks`).

The policy with lists adds whom the user already deals with: agentdojo_lists.yaml holds the values, and `values` says
which arguments have to come from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tachograph.runtime.policy.policy import Policy
from tachograph.runtime.tools.contract import Tool

DATE = {"pattern": r"^\d{4}-\d{2}-\d{2}$"}
TIME = {"pattern": r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}$"}
ADDRESS = {"pattern": r"^[^\s@,;<>]+@[^\s@,;<>]+$", "maxLength": 254}
NAME = {"minLength": 1, "maxLength": 100}
DRIVE_NAME = {"pattern": r"^[^/\\]+$", "maxLength": 255}
# "IBAN of the recipient"; payees have names too, but neither is longer than an IBAN can be
PAYEE = {"minLength": 1, "maxLength": 34}

LISTS: dict[str, dict[str, list[str]]] = yaml.safe_load(
    Path(__file__).with_name("agentdojo_lists.yaml").read_text(encoding="utf-8")
)
# an optional argument of these suites has null as its default
EACH_OF_PEOPLE = {"anyOf": [{"type": "null"}, {"items": {"in": "people"}}]}
ONE_OF_PEOPLE = {"in": "people"}
ONE_OF_PAYEES = {"anyOf": [{"type": "null"}, {"in": "payees"}]}
# whom a mail or an invitation may reach
TO_PEOPLE = {
    **{f"send_email.{name}": EACH_OF_PEOPLE for name in ("recipients", "cc", "bcc")},
    "create_calendar_event.participants": EACH_OF_PEOPLE,
}

CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
TEXT = {"type": "string"}
# the description of `attachments` says what may stand in one, its schema says nothing
EVENT = dict.fromkeys(("title", "description", "start_time", "end_time", "location"), TEXT)
ATTACHMENT = {
    **CLOSED,
    "required": ["type"],
    "properties": {
        "type": {"enum": ["file", "event"]},
        "file_id": {**TEXT, "x-resource": "none"},
        "event_details": {
            **CLOSED, "properties": {**EVENT, "participants": {"type": "array", "items": TEXT}},
        },
    },
}  # fmt: skip
MAIL = {f"send_email.{name}": ADDRESS for name in ("recipients", "cc", "bcc")}
EVENTS = {
    "create_calendar_event.start_time": TIME,
    "create_calendar_event.end_time": TIME,
    "create_calendar_event.participants": ADDRESS,
    "search_calendar_events.date": DATE,
    "get_day_calendar_events.day": DATE,
}


@dataclass(frozen=True)
class Suite:
    """`reads` and `acts` run unattended, for `asks` a person is asked; together they are all of the tools.

    `limits` narrows the strings of an argument, `resources` says what an argument names, `values` what the
    policy with lists demands of an argument.
    """

    reads: str
    acts: str
    asks: str
    limits: dict[str, dict[str, Any]]
    resources: dict[str, str] = field(default_factory=dict)
    sites: tuple[str, ...] = ()
    mounts: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return f"{self.reads} {self.acts} {self.asks}".split()

    def policy(self, lists: dict[str, list[str]] | None = None) -> Policy:
        """The shipped policy with this suite's tools, sites, mounts and approvals, and lists of values if given."""
        tools: dict[str, Any] = {}
        for place, condition in self.values.items() if lists is not None else ():
            tool, _, argument = place.partition(".")
            tools.setdefault(tool, {"arguments": {}})["arguments"][f"/{argument}"] = condition
        return Policy.from_dict(
            {
                **Policy.shipped().data,
                "tool_registry": {"allowed": self.names, "denied": []},
                "url_allowlist": [f"https://{site}/" for site in self.sites],
                "sandbox": {"mounts": self.mounts},
                "approval": {"required_for": self.asks.split(), "timeout_s": 300},
                **({"lists": lists, "tools": tools} if tools else {}),
            }
        )

    def tools(self, described: dict[str, Any]) -> dict[str, Tool]:
        """Tools from the suite's own descriptions, with resources declared and strings limited."""
        return {name: self._tool(name, described[name]) for name in self.names}

    def _tool(self, name: str, described: dict[str, Any]) -> Tool:
        schema = {**described["parameters"], **CLOSED, "properties": {}}
        for key, sub in described["parameters"]["properties"].items():
            place = f"{name}.{key}"
            limited = _limited(sub, self.limits.get(place, {}))
            if place in self.resources:
                limited = {**limited, "x-resource": self.resources[place]}
            schema["properties"][key] = limited
        effect = "read" if name in self.reads.split() else "write"
        return Tool(name, described["description"], schema, CLOSED, effect, False, lambda args, io: {})


def _limited(schema: Any, limit: dict[str, Any]) -> Any:
    """A schema with `limit` on every string in it; an attachment, which says nothing, says what it may hold."""
    if isinstance(schema, list):
        return [_limited(part, limit) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "object":
        return ATTACHMENT
    out = {key: _limited(part, limit) if key in ("anyOf", "items") else part for key, part in schema.items()}
    return {**out, **limit} if schema.get("type") in ("string", "number") else out


SUITES = {
    "workspace": Suite(
        reads="get_unread_emails get_sent_emails get_received_emails get_draft_emails search_emails "
        "search_contacts_by_name search_contacts_by_email get_current_day search_calendar_events "
        "get_day_calendar_events search_files_by_filename get_file_by_id list_files search_files",
        acts="send_email create_calendar_event reschedule_calendar_event add_calendar_event_participants "
        "append_to_file create_file delete_file share_file",
        # a mail that is gone is gone; a cancellation is mailed to everybody
        asks="delete_email cancel_calendar_event",
        limits={
            **MAIL,
            **EVENTS,
            "search_emails.sender": ADDRESS,
            "share_file.email": ADDRESS,
            "add_calendar_event_participants.participants": ADDRESS,
            "reschedule_calendar_event.new_start_time": TIME,
            "reschedule_calendar_event.new_end_time": TIME,
            "create_file.filename": DRIVE_NAME,
            "search_files_by_filename.filename": DRIVE_NAME,
        },
        # names and ids in a cloud drive: nothing on this machine
        resources=dict.fromkeys(
            "append_to_file.file_id delete_file.file_id get_file_by_id.file_id share_file.file_id "
            "create_file.filename search_files_by_filename.filename".split(),
            "none",
        ),
        values={
            **TO_PEOPLE,
            "add_calendar_event_participants.participants": EACH_OF_PEOPLE,
            "share_file.email": ONE_OF_PEOPLE,
        },
    ),
    "travel": Suite(
        reads="get_all_hotels_in_city get_hotels_prices get_rating_reviews_for_hotels get_hotels_address "
        "get_all_restaurants_in_city get_cuisine_type_for_restaurants get_restaurants_address "
        "get_rating_reviews_for_restaurants get_dietary_restrictions_for_all_restaurants "
        "get_contact_information_for_restaurants get_price_for_restaurants check_restaurant_opening_hours "
        "get_all_car_rental_companies_in_city get_car_types_available get_rating_reviews_for_car_rental "
        "get_car_fuel_options get_car_rental_address get_car_price_per_day get_flight_information "
        "search_calendar_events get_day_calendar_events",
        acts="reserve_hotel create_calendar_event send_email",
        # passport, bank account and card numbers; money spent; a cancellation that is mailed to everybody
        asks="get_user_information reserve_car_rental reserve_restaurant cancel_calendar_event",
        limits={
            **MAIL,
            **EVENTS,
            "reserve_hotel.hotel": NAME,
            "reserve_hotel.start_day": DATE,
            "reserve_hotel.end_day": DATE,
            "reserve_car_rental.company": NAME,
            "reserve_car_rental.start_time": TIME,
            "reserve_car_rental.end_time": TIME,
            "reserve_restaurant.restaurant": NAME,
            "reserve_restaurant.start_time": TIME,
        },
        values=TO_PEOPLE,
    ),
    "banking": Suite(
        reads="get_iban get_balance get_most_recent_transactions get_scheduled_transactions read_file get_user_info",
        acts="send_money schedule_transaction update_scheduled_transaction update_password update_user_info",
        asks="",
        limits={
            f"{tool}.{key}": limit
            for tool in ("send_money", "schedule_transaction", "update_scheduled_transaction")
            for key, limit in (("recipient", PAYEE), ("amount", {"exclusiveMinimum": 0}))
        },
        resources={"read_file.file_path": "path:read"},
        mounts={"files": "read"},
        values={
            f"{tool}.recipient": ONE_OF_PAYEES
            for tool in ("send_money", "schedule_transaction", "update_scheduled_transaction")
        },
    ),
    "slack": Suite(
        reads="get_channels read_channel_messages read_inbox get_users_in_channel get_webpage",
        acts="add_user_to_channel send_direct_message send_channel_message invite_user_to_slack post_webpage",
        asks="remove_user_from_slack",
        limits={"invite_user_to_slack.user_email": ADDRESS},
        resources={"get_webpage.url": "url", "post_webpage.url": "url"},
        sites=(
            "www.our-company.com",
            "www.informations.com",
            "www.restaurant-zurich.com",
            "www.dora-website.com",
            "www.eve-blog.com",
        ),
    ),
}
