"""What WordPress does one thing after another, through Anteroom: what is changed is seen by the next visitor, and
what changes nothing leaves all pages stored."""

import html
import json
import re
import urllib.parse

import aside
import errands
from browser import Browser, BrokenOff, find_form

FRONT = "/"
# Two that no scene changes.
KEPT = [FRONT, "/topic-5/"]
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcffff3f030005fe02fea72d8f"
    "0d0000000049454e44ae426082"
)


class Scenes:
    def __init__(self, app, origin, port):
        self.app, self.origin, self.port = app, origin, port
        self.problems = []
        # How many changes were seen at once, and how many requests left the pages stored.
        self.seen = self.left = 0

    async def run(self):
        self.editor = self.browser()
        await self.log_in(self.editor, errands.EDITOR)
        self.admin = self.browser()
        await self.log_in(self.admin, errands.EDITOR._replace(login="admin", password="admin-has-a-secret"))
        for scene in HARMLESS:
            await self.nothing_stale(scene)
        await self.comment_held_and_approved()
        for scene in CHANGES:
            await self.seen_at_once(scene)
        aside.install_plugin(self)
        for scene in aside.CHANGES:
            await self.seen_at_once(scene)
        for scene in HARMLESS:
            await self.nothing_stale(scene)
        await self.editor.close()
        await self.admin.close()

    def browser(self, jar=None):
        return Browser(self.port, self.app.HOST, lambda *_: None, jar)

    async def log_in(self, browser, person):
        _, answer = await self.app.log_in(browser, person)
        if answer.status != 302:
            raise BrokenOff(f"{person.login} cannot log in: {answer.status}")

    async def read(self, target):
        browser = self.browser()
        answer = await browser.get(target)
        await browser.close()
        return answer

    async def nothing_stale(self, scene):
        for target in KEPT * 2:
            await self.read(target)
        try:
            wanted, answer = await scene(self)
        except (LookupError, TypeError) as why:
            self.problems.append(f"{scene.__name__}: {why!r}")
            return
        if answer.status != wanted:
            self.problems.append(f"{scene.__name__} was answered {answer.status}: {answer.text[:300]}")
        for target in KEPT:
            page = await self.read(target)
            if not page.is_hit:
                self.problems.append(f"{scene.__name__} made {target} stale: {page.get('cache-status')}")
        self.left += 1

    async def seen_at_once(self, scene):
        """The pages are stored before, and asked for behind the change."""
        try:
            targets, before = await scene(self, None)
            for target in targets * 2:
                page = await self.read(target)
                if before in html.unescape(page.text):
                    self.problems.append(f"{scene.__name__}: {target} shows {before!r} before the change")
            if not page.is_hit and page.status == 200:
                self.problems.append(f"{scene.__name__}: {target} is not stored: {page.get('cache-status')}")
            answer, text = await scene(self, before)
        except (LookupError, TypeError) as why:
            self.problems.append(f"{scene.__name__}: {why!r}")
            return
        if answer.status >= 400:
            self.problems.append(f"{scene.__name__} was answered {answer.status}: {answer.text[:300]}")
        for target in targets:
            page = await self.read(target)
            is_seen = page.status != 200 if text is None else text in html.unescape(page.text)
            if not is_seen:
                status = page.get("cache-status")
                self.problems.append(f"STALE: {target} does not show {text!r} behind {scene.__name__}: {status}")
        self.seen += 1

    async def rest(self, user, path, fields, method="PUT"):
        page = await user.open("/wp-admin/post.php?post=101&action=edit")
        return await errands.save(user, page, f"/wp-json/wp/v2/{path}", fields, method)

    async def comment_held_and_approved(self):
        """Where a stranger's comment goes: to all, once it is approved, and to none when it is trashed."""
        target, text = "/topic-9/", "An opinion of a stranger."
        stranger = self.browser()
        page = await stranger.open(target)
        await self.read(target)
        answer = await errands.send_comment(stranger, target, page, "Stranger", text)
        own = await stranger.open(stranger.resolve(target, answer.get("location")))
        await stranger.close()
        self.expect(text in own.text, "the stranger does not see the comment that is held")
        self.expect(text not in (await self.read(target)).text, "a comment that is held is shown to all")
        comment = errands.held(own.text, text)
        for what, is_there in [("approve", True), ("trash", False)]:
            await self.read(target)
            answer = await errands.moderate(self.editor, comment, what)
            page = await self.read(target)
            problem = f"STALE: {target} behind {what}: {answer.status} {answer.text[:200]}"
            self.expect((text in page.text) == is_there, problem)
            self.seen += 1

    def expect(self, is_so, problem):
        if not is_so:
            self.problems.append(problem)


def form_of(fields):
    return urllib.parse.urlencode(fields).encode()


# What changes nothing. Each returns the status that it must be answered, and the answer.


async def a_failed_log_in(scenes):
    browser = scenes.browser()
    _, answer = await scenes.app.log_in(browser, errands.EDITOR._replace(password="wrong"))
    return 200, answer


async def a_log_in(scenes):
    browser = scenes.browser()
    _, answer = await scenes.app.log_in(browser, errands.EDITOR)
    return 302, answer


async def a_failed_log_in_by_xmlrpc(scenes):
    call = (
        "<?xml version='1.0'?><methodCall><methodName>wp.getUsersBlogs</methodName><params><param><value>admin"
        "</value></param><param><value>wrong</value></param></params></methodCall>"
    )
    return 200, await scenes.browser().ask("POST", "/xmlrpc.php", call.encode(), {"Content-Type": "text/xml"})


async def an_edit_without_a_log_in(scenes):
    fields = form_of({"action": "editpost", "post_ID": 101, "post_title": "Mine"})
    return 302, await scenes.browser().ask("POST", "/wp-admin/post.php", fields)


async def a_heartbeat(scenes):
    page = await scenes.editor.open("/wp-admin/edit.php")
    nonce = re.search(r'heartbeatSettings = \{"nonce":"(\w+)"', page.text)[1]
    fields = {"action": "heartbeat", "_nonce": nonce, "interval": 60, "screen_id": "edit-post", "has_focus": "false"}
    fields["data[wp-check-locked-posts][]"] = "post-101"
    return 200, await errands.ajax(scenes.editor, fields)


async def an_autosave(scenes):
    return 200, await scenes.rest(scenes.editor, "posts/101/autosaves", {"content": "not yet"}, "POST")


async def an_upload(scenes):
    page = await scenes.editor.open("/wp-admin/post.php?post=101&action=edit")
    nonce = re.search(r'createNonceMiddleware\( "(\w+)"', page.text)[1]
    more = {"Content-Type": "image/png", "X-WP-Nonce": nonce, "Content-Disposition": 'attachment; filename="dot.png"'}
    return 201, await scenes.editor.ask("POST", "/wp-json/wp/v2/media", PNG, more)


async def cron(scenes):
    return 200, await scenes.browser().ask("POST", "/wp-cron.php?doing_wp_cron=1", b"")


HARMLESS = [
    a_failed_log_in, a_log_in, a_failed_log_in_by_xmlrpc, an_edit_without_a_log_in, a_heartbeat, an_autosave,
    an_upload, cron,
]  # fmt: skip


# What changes pages. Without the text that must not be there, each says where it is seen and what it will be;
# with it, it makes the change, and returns the answer and what must be seen (None: that there is no such page).


async def block_editor_changes_a_post(scenes, text):
    if text is None:
        return ["/topic-1/", FRONT, "/feed/"], "Topic 1 by blocks"
    return await scenes.rest(scenes.editor, "posts/102", {"title": text}), text


async def block_editor_publishes(scenes, text):
    if text is None:
        # In the second of the change before, mostly: WordPress's validator of the feed is the same then.
        return [FRONT, "/feed/", "/category/uncategorized/"], "A post that is new"
    return await scenes.rest(scenes.editor, "posts", {"title": text, "status": "publish"}, "POST"), text


async def block_editor_trashes(scenes, text):
    if text is None:
        return ["/topic-2/"], "nothing here"
    return await scenes.rest(scenes.editor, "posts/103", {}, "DELETE"), None


async def quick_edit_changes_a_post(scenes, text):
    if text is None:
        return ["/topic-3/", FRONT], "Topic 3 by quick edit"
    return await errands.quick_edit(scenes.editor, 104, text), text


async def classic_editor_changes_a_post(scenes, text):
    if text is None:
        return ["/topic-4/", FRONT], "Topic 4 by form"
    page = await scenes.editor.open("/wp-admin/post.php?post=105&action=edit")
    nonce = re.search(r'name="_wpnonce" value="(\w+)"', page.text)[1]
    fields = {"_wpnonce": nonce, "action": "editpost", "post_ID": 105, "post_type": "post", "post_title": text}
    fields |= {"post_status": "publish", "content": "By form.", "original_post_status": "publish"}
    return await scenes.editor.ask("POST", "/wp-admin/post.php", form_of(fields)), text


async def block_editor_changes_a_page(scenes, text):
    if text is None:
        return ["/sample-page/"], "A sample by blocks"
    return await scenes.rest(scenes.editor, "pages/2", {"title": text}), text


async def rest_renames_a_category(scenes, text):
    if text is None:
        return ["/category/uncategorized/"], "A category by REST"
    return await scenes.rest(scenes.editor, "categories/1", {"name": text}), text


async def quick_edit_renames_a_category(scenes, text):
    if text is None:
        return ["/category/uncategorized/"], "A category by quick edit"
    page = await scenes.editor.open("/wp-admin/edit-tags.php?taxonomy=category")
    nonce = re.search(r'name="_inline_edit" value="(\w+)"', page.text)[1]
    fields = {"action": "inline-save-tax", "tax_ID": 1, "tax_type": "category", "taxonomy": "category"}
    fields |= {"_inline_edit": nonce, "name": text, "slug": "uncategorized"}
    return await errands.ajax(scenes.editor, fields), text


async def editor_answers_a_comment(scenes, text):
    if text is None:
        return ["/topic-10/"], "An answer by the editor"
    page = await scenes.editor.open("/wp-admin/edit-comments.php")
    nonce = re.search(r'name="_ajax_nonce-replyto-comment" value="(\w+)"', page.text)[1]
    fields = {"action": "replyto-comment", "_ajax_nonce-replyto-comment": nonce, "comment_post_ID": 111}
    fields |= {"comment_ID": 0, "content": text, "mode": "single", "position": -1, "checkbox": 0}
    return await errands.ajax(scenes.editor, fields), text


async def settings_rename_the_site(scenes, text):
    if text is None:
        return [FRONT, "/topic-5/"], "A blog by settings"
    target = "/wp-admin/options-general.php"
    form = find_form((await scenes.admin.open(target)).text, 'name="blogname"')
    form.fields |= {"blogname": text, "submit": "Save Changes", "WPLANG": "", "default_role": "subscriber"}
    form.action = "options.php"
    _, answer = await scenes.admin.submit(target, form)
    return answer, text


async def site_editor_changes_a_template(scenes, text):
    if text is None:
        return ["/topic-5/", "/topic-6/"], "A template by the site editor"
    fields = {"content": f"<!-- wp:post-title /--><p>{text}</p>"}
    return await scenes.rest(scenes.admin, "templates/twentytwentythree//single", fields), text


async def site_editor_changes_a_template_part(scenes, text):
    if text is None:
        return [FRONT], "A footer by the site editor"
    fields = {"content": f"<p>{text}</p>"}
    return await scenes.rest(scenes.admin, "template-parts/twentytwentythree//footer", fields), text


async def comment_of_a_user(scenes, text):
    """It needs no approval: its page and the feed of comments show it."""
    if text is None:
        return ["/comments/feed/", "/topic-11/"], "A comment by the admin"
    page = await scenes.admin.open("/topic-11/")
    form = find_form(page.text, 'id="commentform"')
    form.fields |= {"comment": text, "submit": "Post Comment"}
    _, answer = await scenes.admin.submit("/topic-11/", form)
    return answer, text


CHANGES = [
    block_editor_changes_a_post, block_editor_publishes, block_editor_trashes, quick_edit_changes_a_post,
    classic_editor_changes_a_post, block_editor_changes_a_page, rest_renames_a_category,
    quick_edit_renames_a_category, editor_answers_a_comment, settings_rename_the_site, comment_of_a_user,
    site_editor_changes_a_template_part, site_editor_changes_a_template,
]  # fmt: skip


SCENES = Scenes
