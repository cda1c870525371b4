"""What WordPress's crowd does beside reading and editing own pages: a stranger comments, and an editor moderates;
an editor changes what all read. Whoever asks next must see it."""

import html
import json
import re
import urllib.parse

from browser import find_form
from people import Person

EDITOR = Person("editor", "editor-has-a-secret", "The Editor", "editor@blog.example", "What only editor knows")
# The posts of the front page, which shows them in full.
NEWEST = 8


async def comment(crowd, rng, number):
    """A stranger's comment is held, shown to its author alone, approved, and then shown to all."""
    target = f"/topic-{rng.randrange(crowd.app.TOPICS)}/"
    # WordPress takes one comment from an address in fifteen seconds.
    stranger = crowd.browser(address=f"127.1.{number // 250}.{number % 250 + 1}")
    text = f"An opinion, the {number}th."
    stranger.doing = "commenting"
    page = await stranger.open(target)
    answer = await send_comment(stranger, target, page, f"Stranger {number}", text)
    crowd.expect(answer.status == 302, f"a comment at {target} was answered {answer.status}")
    own = await stranger.open(stranger.resolve(target, answer.get("location")))
    crowd.expect(text in own.text, f"the stranger does not see the comment that is held at {target}")
    await stranger.close()
    await expect(crowd, target, text, is_there=False)

    async with crowd.locks[EDITOR.login]:
        editor = await logged_in(crowd)
        if editor is None:
            return
        editor.doing = "moderating"
        await moderate(editor, held(own.text, text), "approve")
        await expect(crowd, target, text)
        if rng.random() < 0.5:
            await moderate(editor, held(own.text, text), "trash")
            await expect(crowd, target, text, is_there=False)
        await leave(crowd, editor)


async def change(crowd, rng, number):
    """An editor changes a post: its page, the front page and the feed show it."""
    topic = rng.randrange(NEWEST)
    async with crowd.locks[EDITOR.login]:
        editor = await logged_in(crowd)
        if editor is None:
            return
        editor.doing = "editing"
        title = f"Topic {topic}, edition {number}"
        how = quick_edit if rng.random() < 0.5 else block_editor
        answer = await how(editor, 101 + topic, title)
        crowd.expect(answer.status == 200, f"{title} cannot be saved: {answer.status}")
        for target in (f"/topic-{topic}/", "/", "/feed/"):
            await expect(crowd, target, title)
        await leave(crowd, editor)


# WordPress reads and writes the list of a user's sessions in two steps: of a login and a logout of the same user at
# once, one may be lost. So each waits for the editor's lock.
ERRANDS = [comment, change]


async def logged_in(crowd):
    editor = crowd.browser()
    return editor if await crowd.log_in(editor, EDITOR) is not None else None


async def leave(crowd, editor):
    editor.doing = "logging out"
    await crowd.app.log_out(editor, await editor.open("/"))
    editor.user = None
    await editor.close()


async def expect(crowd, target, text, is_there=True):
    """A new visitor asks."""
    reader = crowd.browser()
    page = await reader.get(target)
    await reader.close()
    if (text in html.unescape(page.text)) != is_there:
        crowd.problem(f"STALE: {target} shows {text!r} {'not yet' if is_there else 'still'}", page)


async def send_comment(browser, target, page, name, text):
    form = find_form(page.text, 'id="commentform"')
    form.fields.update(author=name, email=f"{name.replace(' ', '-').lower()}@strangers.example", url="", comment=text)
    form.fields["submit"] = "Post Comment"
    _, answer = await browser.submit(target, form)
    return answer


def held(page, text):
    """The number of this comment."""
    before = html.unescape(page).partition(text)[0]
    return re.findall(r'id="comment-(\d+)"', before)[-1]


async def moderate(editor, comment, what):
    """By the list of comments, as its script does it."""
    page = await editor.open("/wp-admin/edit-comments.php")
    action = {"approve": "approvecomment", "trash": "trashcomment"}[what]
    link = re.search(rf"comment\.php\?c={comment}&[^'\"]*action={action}[^'\"]*", html.unescape(page.text))[0]
    nonce = re.search(r"_wpnonce=(\w+)", link)[1]
    fields = {"id": comment, "_ajax_nonce": nonce, "_url": "/wp-admin/edit-comments.php"}
    fields |= {"_total": 1, "_per_page": 20, "_page": 1}
    if what == "approve":
        fields |= {"action": "dim-comment", "dimClass": "unapproved", "new": "approved"}
    else:
        fields |= {"action": "delete-comment", "trash": 1}
    return await ajax(editor, fields)


async def ajax(browser, fields):
    more = {"X-Requested-With": "XMLHttpRequest"}
    return await browser.ask("POST", "/wp-admin/admin-ajax.php", urllib.parse.urlencode(fields).encode(), more)


async def quick_edit(editor, post, title):
    """By the list of posts, as its script does it."""
    page = await editor.open("/wp-admin/edit.php")
    nonce = re.search(r'name="_inline_edit" value="(\w+)"', page.text)[1]
    name = f"topic-{post - 101}"
    fields = {
        "action": "inline-save", "post_ID": post, "_inline_edit": nonce, "post_type": "post", "screen": "edit-post",
        "post_title": title, "post_name": name, "_status": "publish", "post_view": "list", "edit_date": "true",
        "comment_status": "open",
    }  # fmt: skip
    row = re.search(rf'id="inline_{post}">(.*?)class="sticky"', page.text, re.S)[1]
    for field in ("mm", "jj", "aa", "hh", "mn", "ss"):
        fields[field] = re.search(rf'<div class="{field}">(\d+)</div>', row)[1]
    return await ajax(editor, fields)


async def block_editor(editor, post, title):
    return await editor_saves(editor, post, {"title": title})


async def editor_saves(editor, post, fields):
    page = await editor.open(f"/wp-admin/post.php?post={post}&action=edit")
    return await save(editor, page, f"/wp-json/wp/v2/posts/{post}?_locale=user", fields)


async def save(browser, page, target, fields, method="PUT"):
    """By REST, with the nonce of the editor's page."""
    nonce = re.search(r'createNonceMiddleware\( "(\w+)"', page.text)[1]
    more = {"Content-Type": "application/json", "X-WP-Nonce": nonce}
    if method != "POST":
        more["X-HTTP-Method-Override"] = method
    return await browser.ask("POST", target, json.dumps(fields).encode(), more)
