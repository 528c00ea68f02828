"""How exceptions look in `failed`."""

import os

LINES = 200
LONGEST = 64 * 1024
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def name(error):
    """Returns the qualified name of an exception's class, without `builtins`."""
    kind = type(error)
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return "%s.%s" % (kind.__module__, kind.__qualname__)


def message(error):
    if isinstance(error, SystemExit):
        return "the job called exit with %s" % (error.code,)
    try:
        said = str(error)
    except Exception as another:
        said = "(its message cannot be read: %s)" % name(another)
    if len(said) > LONGEST:
        said = said[:LONGEST] + "…"
    return said


def backtrace(error, function=None):
    """Returns the lines of a traceback, innermost first, without the runner's own."""
    lines = _frames(error)
    if not lines and function is not None:
        code = getattr(function, "__code__", None)
        if code is not None:
            lines = ["%s:%d:in '%s'" % (code.co_filename, code.co_firstlineno, code.co_name)]
    seen = {id(error)}
    cause = error
    while True:
        following = cause.__cause__
        if following is None and not cause.__suppress_context__:
            following = cause.__context__
        if following is None or id(following) in seen or len(lines) > LINES:
            return lines
        seen.add(id(following))
        cause = following
        lines.append("caused by %s: %s" % (name(cause), message(cause)[:500]))
        lines += _frames(cause)


def _frames(error):
    frames = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not code.co_filename.startswith(_HERE):
            frames.append((code.co_filename, step.tb_lineno, code.co_name))
        step = step.tb_next
    frames.reverse()
    left_out = len(frames) - LINES
    if left_out > 0:
        half = LINES // 2
        frames = frames[:half] + [None] + frames[-half:]
    return ["… %d more" % left_out if frame is None else "%s:%d:in '%s'" % frame for frame in frames]
