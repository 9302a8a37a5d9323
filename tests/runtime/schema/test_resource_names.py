"""Names and descriptions that say a URL, a host or a path."""

from __future__ import annotations

from typing import Any

import pytest

from tachograph.runtime.schema.resource_names import is_called_resource, is_part_name, looks_like_resource

RESOURCES = """
url URL urls imageUrl image_url IMAGE_URL imageURLs baseurl base-url callbackUrl uri redirectURI href link host
hostname server_host endpoint apiEndpoint webhook domain domains path file_path filePath FilePath filepath
inputpath outputPath file files filename fileName file2 logfile sourceFile dir workdir outDir directory
subdirectory folder dest destination cwd root src website websites ip proxy URLPath HTTPLink
u-r-l U_R_L uRL URl image_u_r_l dst repo gitRepository basedir home_dir tmpdir subdirs rootDir dirname fname fpath
attachment attachments permalink homepage redirect redirect_to socket dsn jdbc workspace server nameserver site feed
ipaddr ipv4 ipv6 cidr fqdn vhost netloc webpage sitemap symlink iri domainname subnet filelist
""".split()
OTHERS = """
profile profiles userProfile title limit query text content original_text origin origin_airport department
arrival hosting ghost hostel pathology empathy urlaub curly curl fileless filed compile profiler directive
linked blinker uriah subject body message name id page cursor lang language tags count format timeout
start_date end_date amount currency card_id user_email from to recipients seats direct_flight blank
source target location image template output input pattern end_point to_address archive key value items ref
""".split()
FOREIGN = ["größe", "u\u0440l", "url\u200b", "f\u0131le", "路径", "ur\u0000l", "na\tme"]


@pytest.mark.parametrize("name", [*RESOURCES, *FOREIGN])
def test_names_that_look_like_a_resource(name: str) -> None:
    assert looks_like_resource(name)


@pytest.mark.parametrize("name", OTHERS)
def test_names_that_do_not(name: str) -> None:
    assert not looks_like_resource(name)


@pytest.mark.parametrize(
    "name", ["name", "value", "id", "key", "ref", "source", "target", "src", "text", "Name"]
)
def test_names_that_are_what_their_parent_is(name: str) -> None:
    assert is_part_name(name) and not is_part_name(f"user_{name}")


FORMATS = """
uri URI uri-reference uri-template iri iri-reference url hostname idn-hostname ipv4 ipv6 path file-path directory-path
http-url any-url file_path FilePath websocket-url multi-host-uri
""".split()
SHOWN: list[dict[str, Any]] = [
    *({"format": form} for form in FORMATS), {"pattern": "^https?://"}, {"pattern": r"^(?:http|ftp):\/\/"},
    {"pattern": "^/[a-z]+"}, {"pattern": r"^(\/\w+)+$"}, {"default": "https://x.test/"},
    {"default": "/etc/passwd"}, {"default": "~/notes"}, {"default": "C:\\x"}, {"examples": [1, "../up"]},
    {"example": "s3://bucket/key"}, {"examples": ["www.x.test"]}, {"default": "\\\\share\\x"},
]  # fmt: skip
HARMLESS: list[dict[str, Any]] = [
    *({"format": form} for form in ("email", "date-time", "uuid", "json-pointer", "regex", "int64", "duration")),
    {"pattern": r"^\d+/\d+$"}, {"default": "N/A"}, {"default": "a/b"}, {"default": "."},
    {"examples": ["1/2", "/", None]}, {"default": 3}, {"examples": {"a": "/etc"}}, {"format": 3},
    {"pattern": None}, {"title": 3, "description": ["url"]},
]  # fmt: skip


@pytest.mark.parametrize("schema", SHOWN, ids=str)
def test_a_format_a_pattern_and_an_example_speak_under_any_name(schema: dict[str, Any]) -> None:
    for name in (None, "a", "query", "source"):
        assert is_called_resource(name, [{}, schema])


@pytest.mark.parametrize("schema", HARMLESS, ids=str)
def test_what_shows_no_resource(schema: dict[str, Any]) -> None:
    for name in (None, "a", "source"):
        assert not is_called_resource(name, [schema, {}])


@pytest.mark.parametrize(
    "text",
    [
        "The URL to fetch",
        "File path",
        "the folder to list",
        "Name of the file",
        "https://...",
        "IP address",
        "web page",
    ],
)
def test_what_is_said_of_a_name_that_may_mean_anything(text: str) -> None:
    for name in ("source", "target_location", "imageSource", "to", "output", "name", "template"):
        assert is_called_resource(name, [{"description": text}])
        assert is_called_resource(name, [{"title": text}])
    for name in ("query", "note", "user_name", "airport"):
        assert not is_called_resource(name, [{"description": text}])


@pytest.mark.parametrize(
    "text",
    ["The city to fly to", "such as name@domain.com", "A profile", "the filed claim", "sender's address"],
)
def test_what_says_nothing_of_a_resource(text: str) -> None:
    assert not is_called_resource("source", [{"description": text, "title": text}])
