"""What changes pages of WordPress without a request that the preset knows: scripts, cron and links. The plugin of the
guide tells Anteroom."""

import asyncio
import json
import re
import time

import servers

GUIDE = "docs/guides/wordpress.md"
# The beginning of a script that loads WordPress, as WP-CLI does.
LOAD = "<?php $_SERVER['HTTP_HOST'] = 'blog.example'; require ABSPATH . 'wp-load.php'; "


def install_plugin(scenes):
    """The guide's lines, as they stand there but for the port."""
    text = (scenes.app.HERE.parents[2] / GUIDE).read_text()
    found = re.search(r"```php\n(<\?php // wp-content/mu-plugins/anteroom\.php\n.*?)```", text, re.DOTALL)
    if not found or "http://127.0.0.1/" not in found[1]:
        raise servers.Broken(f"{GUIDE} has no plugin")
    folder = scenes.origin.folder / "site" / "wp-content" / "mu-plugins"
    folder.mkdir()
    (folder / "anteroom.php").write_text(found[1].replace("127.0.0.1/", f"127.0.0.1:{scenes.port}/"))


class Done:
    """What a script answers with: that it came to its end."""

    status = 200
    text = ""


def script(scenes, lines):
    """Runs lines of PHP beside the web server, as a user of WP-CLI does."""
    file = scenes.origin.folder / "script.php"
    file.write_text(LOAD + lines)
    scenes.app.php(scenes.origin.folder, file)
    return Done()


async def a_script_changes_a_post(scenes, text):
    if text is None:
        return ["/topic-5/", "/feed/"], "Topic 5 by a script"
    return script(scenes, f"wp_update_post(['ID' => 106, 'post_title' => {json.dumps(text)}]);"), text


async def a_script_publishes(scenes, text):
    if text is None:
        return ["/category/uncategorized/"], "A post by a script"
    post = f"['post_title' => {json.dumps(text)}, 'post_content' => '-', 'post_status' => 'publish']"
    return script(scenes, f"wp_insert_post({post});"), text


async def a_script_deletes_a_post(scenes, text):
    if text is None:
        return ["/topic-6/"], "nothing here"
    return script(scenes, "wp_delete_post(107, true);"), None


async def a_script_approves_a_comment(scenes, text):
    if text is None:
        return ["/comments/feed/"], "A comment by a script"
    comment = f"['comment_post_ID' => 108, 'comment_content' => {json.dumps(text)}, 'comment_approved' => 0]"
    return script(scenes, f"wp_set_comment_status(wp_insert_comment({comment}), 'approve');"), text


async def a_script_renames_a_category(scenes, text):
    if text is None:
        return ["/category/uncategorized/"], "A category by a script"
    return script(scenes, f"wp_update_term(1, 'category', ['name' => {json.dumps(text)}]);"), text


async def a_script_renames_the_site(scenes, text):
    if text is None:
        return ["/", "/topic-8/"], "A blog by a script"
    return script(scenes, f"update_option('blogname', {json.dumps(text)});"), text


async def cron_publishes(scenes, text):
    """The time of a post has come. Of the other events some ask hosts that are not there, which takes its time."""
    if text is None:
        return ["/category/uncategorized/"], "A post by cron"
    script(scenes, f"""
        $id = wp_insert_post(['post_title' => {json.dumps(text)}, 'post_content' => '-', 'post_status' => 'draft']);
        $past = gmdate('Y-m-d H:i:s', time() - 5);
        $fields = ['post_status' => 'future', 'post_date' => $past, 'post_date_gmt' => $past];
        $wpdb->update($wpdb->posts, $fields, ['ID' => $id]);
        clean_post_cache($id);
        update_option('cron', ['version' => 2]);
        wp_schedule_single_event(time() - 5, 'publish_future_post', [$id]);
    """)
    answer = await scenes.read("/wp-cron.php")
    # It is answered before it works.
    deadline = time.monotonic() + servers.START_S
    while text not in (await scenes.read("/category/uncategorized/")).text and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return answer, text


async def a_link_trashes_a_post(scenes, text):
    """The list of posts does it by GET."""
    if text is None:
        return ["/topic-9/"], "nothing here"
    page = await scenes.editor.open("/wp-admin/edit.php?s=Topic+9")
    nonce = re.search(r"post=110&(?:amp;|#038;)action=trash&(?:amp;|#038;)_wpnonce=(\w+)", page.text)[1]
    return await scenes.editor.get(f"/wp-admin/post.php?post=110&action=trash&_wpnonce={nonce}"), None


CHANGES = [
    a_script_changes_a_post, a_script_publishes, a_script_deletes_a_post, a_script_approves_a_comment,
    a_script_renames_a_category, a_script_renames_the_site, cron_publishes, a_link_trashes_a_post,
]  # fmt: skip
