"""Leads links to files that are not pages of the site to the repository. mkdocs.yml names this."""
import os
import re


def on_page_markdown(markdown, page, config, files):
    def lead(link):
        path = os.path.normpath(os.path.join(os.path.dirname(page.file.src_path), link[2]))
        if os.path.isfile(os.path.join(config["docs_dir"], path)) or not os.path.exists(path):
            return link[0]  # a page, or an error that mkdocs reports
        return f"{link[1]}{config['repo_url']}/blob/main/{path}{link[3]}"

    return re.sub(r"(\]\()(?!\w+:|#)([^)#\s]+)((?:#[^)\s]*)?\))", lead, markdown)
