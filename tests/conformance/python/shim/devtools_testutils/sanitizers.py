from . import _record_nothing

add_general_regex_sanitizer = _record_nothing
add_oauth_response_sanitizer = _record_nothing
add_remove_header_sanitizer = _record_nothing
