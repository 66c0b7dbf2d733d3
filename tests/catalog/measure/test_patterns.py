"""Forms of text, and hints of personal data with their reasons."""

from __future__ import annotations

import pytest

from etude.catalog.measure.patterns import find_patterns, pattern_mask
from etude.catalog.measure.pii import find_pii, mask_pii_value
from etude.catalog.model import Family, Pattern


@pytest.mark.parametrize(
    ("texts", "kind", "form"),
    [
        (["a@b.com", "x.y+z@mail.co.uk"], "email", None),
        (["jörg@müller.de", "почта@пример.рф", "अजय@डाटा.भारत", "e\u0301a@ex.fr", "a@b.xn--p1ai"], "email", None),
        (["https://x.org/a?b=c", "http://y.de"], "url", None),
        (["7f0c1a2e-11aa-4bcd-9e00-0123456789ab"], "uuid", None),
        (["10.0.0.1", "fe80::1:2:3"], "ip", None),
        (["2024-02-29", "2023-12-31"], "date", "%Y-%m-%d"),
        (["12/25/2020", "01/02/2020"], "date", "%m/%d/%Y"),
        (["25/12/2020", "01/02/2020"], "date", "%d/%m/%Y"),
        (["2024-01-02T03:04:05Z", "2024-01-02 03:04:05.123"], "timestamp", "ISO 8601"),
        (["20240102 03:04:05"], "timestamp", "%Y%m%d %H:%M:%S"),
        (["4111 1111 1111 1111"], "card", None),
        (["GB82 WEST 1234 5698 7654 32"], "iban", None),
        (["+1 415 555 2671", "(415) 555-2671"], "phone", None),
        (["1", "2.5", "-3"], "number", None),
        (["yes", "no"], "boolean", None),
        (["AB-1234", "XY-0001"], "code", "AA-9999"),
        (["DE", "FR", "US"], "code", "AA"),
    ],
)
def test_forms(texts: list[str], kind: str, form: str | None) -> None:
    found = find_patterns(texts)
    assert (found[0].kind, found[0].form, found[0].share) == (kind, form, 1.0)


@pytest.mark.parametrize(
    "texts",
    [
        ["red", "green"],
        ["2024-02-30"],
        ["4111 1111 1111 1112"],
        ["²", "🙂"],
        ["jörg\u00a0k@müller.de", "ä@b", "ä@@b.de", "ä@b..de", "ä@1.2"],
        ["", " "],
        [],
    ],
)
def test_no_form(texts: list[str]) -> None:
    assert not {p.kind for p in find_patterns(texts)} & {"date", "card", "email", "number"}


def test_two_forms_in_one_column() -> None:
    found = find_patterns(["2024-01-01"] * 6 + ["01.02.2024"] * 4)
    assert [(p.form, p.share) for p in found] == [("%Y-%m-%d", 0.6), ("%d.%m.%Y", 0.4)]


def test_masks_of_codes() -> None:
    assert pattern_mask("Ab-12 é🙂") == "Aa-99 a🙂"


@pytest.mark.parametrize(
    ("table", "column", "family", "kind"),
    [
        ("t", "contactEmail", "text", "email"),
        ("customers", "name", "text", "person name"),
        ("t", "LastName", "text", "person name"),
        ("t", "birth_date", "date", "birth date"),
        ("t", "phone_number", "integer", "phone"),
        ("t", "ssn", "text", "national id"),
        ("t", "password_hash", "text", "credential"),
        ("t", "street", "text", "address"),
        ("patients", "ins_policy_num", "text", "insurance number"),
        ("doctors", "bd_cert_num", "text", "national id"),
        ("doctors", "lic_num", "text", "national id"),
        ("t", "licenceNo", "text", "national id"),
        ("t", "passport_no", "text", "national id"),
        ("t", "acct_nr", "integer", "bank account"),
        ("t", "cardNum", "text", "payment card"),
    ],
)
def test_names_that_tell(table: str, column: str, family: Family, kind: str) -> None:
    hint = find_pii(table, column, family, ())[0]
    assert hint.kind == kind and hint.reason and hint.confidence >= 0.5


@pytest.mark.parametrize(
    ("table", "column", "family"),
    [
        ("products", "name", "text"),
        ("t", "email_verified", "boolean"),
        ("t", "address_id", "integer"),
        ("t", "token_count", "integer"),
        ("t", "wallet_address", "text"),
        ("t", "tell", "text"),
        ("orders", "order_number", "text"),
        ("customers", "order_num", "integer"),
        ("products", "product_code", "text"),
        ("products", "certificate_number", "text"),
        ("customers", "license_type", "text"),
        ("policies", "policy_type", "text"),
        ("patients", "policy_count", "integer"),
        ("accounts", "account_id", "integer"),
        ("rooms", "room_no", "integer"),
        ("doctors", "bed_num", "integer"),
    ],
)
def test_names_that_do_not(table: str, column: str, family: Family) -> None:
    assert find_pii(table, column, family, ()) == ()


def test_values_and_names_together_are_surer() -> None:
    seen = (Pattern(kind="email", share=0.9),)
    by_values, by_both = find_pii("t", "x", "text", seen)[0], find_pii("t", "email", "text", seen)[0]
    assert by_values.confidence < by_both.confidence and "90% of the values" in by_both.reason


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("email", "ann.lee@corp.example.org", "a***@***.org"),
        ("phone", "+49 30 1234", "+** ** ****"),
        ("birth date", "1990-05-17", "1990-**-**"),
        ("person name", "Ann Lee", "A** ***"),
        ("payment card", 4111111111111111, "****************"),
        ("email", None, None),
    ],
)
def test_masked_values_keep_their_form_only(kind: str, value: str | int | None, shown: str | None) -> None:
    assert mask_pii_value(kind, value) == shown
