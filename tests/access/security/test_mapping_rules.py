"""ssl.principal.mapping.rules, as Kafka's SslPrincipalMapper has them (KIP-371; spec 10.3)."""

from __future__ import annotations

import pytest

from magicbyte.access.security.names import MappingRules, distinguished_name
from magicbyte.engine.errors import InvalidConfigError, SecurityError

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", DUKE, DUKE),
        (r"RULE:^CN=(.*?),.*$/$1/L,DEFAULT", "CN=Duke,O=x", "duke"),  # check 37
        (r"RULE:^CN=(.*?),.*$/$1/U", "CN=Duke,O=x", "DUKE"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L , DEFAULT", DUKE, "duke@serviceusers"),
        (r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L , DEFAULT", "CN=x", "CN=x"),
        (r"RULE:^cn=(.*?),.*$/$1/, RULE:^.*OU=(.*?),.*$/$1@test/U", DUKE, "SERVICEUSERS@TEST"),
        ("RULE:CN=(.*?)/$1/", "CN=Duke,OU=S", "Duke,OU=S"),
        (r"RULE:CN=([^,]*),.*/$1\/$2\\/", DUKE, "Duke/$2\\"),
        (r"RULE:CN=a\/(.*)/$1/", "CN=a/b", "b"),
        (r"RULE:CN=(.)(.).*/$12$2$0/L", "CN=Duke", "d2ucn=duke"),
        (r"RULE:^CN=([^,]*),.*$/$1,x/,DEFAULT", DUKE, "Duke,x"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_says_who_it_is(rules: str, name: str, user: str) -> None:
    assert MappingRules.parse(rules).user_of(name) == user


@pytest.mark.parametrize(
    "rules", ["default", "RULE:^CN=(.*)/$1", "RULE:CN=(.*)/$1/X", "DEFAULT,RULE:x", "RULE:(/$1/", "RULE:x/$y/"]
)
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"ssl\.principal\.mapping\.rules"):
        MappingRules.parse(rules)


def test_a_name_without_a_matching_rule_is_refused() -> None:
    with pytest.raises(SecurityError, match="no rule"):
        MappingRules.parse("RULE:CN=x/y/").user_of(DUKE)


def test_38_names_are_written_as_java_writes_them_the_last_part_first_and_e_mail_by_its_number() -> None:
    subject = [[("countryName", "DE")], [("organizationName", 'A, "B"')], [("emailAddress", "a@b")]]
    assert distinguished_name(subject) == r"1.2.840.113549.1.9.1=#1603614062,O=A\, \"B\",C=DE"
