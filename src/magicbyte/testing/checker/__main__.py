"""`python -m magicbyte.testing.checker HISTORY.jsonl`: judge a file. Exit status: 0 sound, 1 anomalies, 2 wrong use."""

import json

import click

from magicbyte.testing.checker import HistoryFile, check


@click.command()
@click.argument("history", type=click.Path(exists=True, dir_okay=False))
@click.option("--format", "kind", type=click.Choice(["text", "json"]), default="text", help="How to print the report.")
def main(history: str, kind: str) -> None:
    """Judge HISTORY, what clients saw of a cluster, one operation a line. Exit status: 0 sound, 1 anomalies."""
    try:
        file = HistoryFile(history)
        report = check(file, file.rules)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    click.echo(json.dumps(report.to_json(), indent=2) if kind == "json" else str(report))
    raise SystemExit(0 if report.is_sound else 1)


main(prog_name="python -m magicbyte.testing.checker")
