"""In and out: parquet builds, the `datasets` loader and its hook, exports and the Hub, files and progress."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .chat import ChatClient as ChatClient
    from .chat import NoAnswerError as NoAnswerError
    from .chat import Reply as Reply
    from .chat import check_endpoint as check_endpoint
    from .files import file_digest as file_digest
    from .files import whole_file as whole_file
    from .files import write_whole as write_whole
    from .progress import Progress as Progress
    from .progress import clock_text as clock_text
    from .workers import start_worker as start_worker

__getattr__, __dir__, __all__ = attach(
    __name__,
    chat="ChatClient NoAnswerError Reply check_endpoint",
    files="file_digest whole_file write_whole",
    progress="Progress clock_text",
    workers="start_worker",
)
