<?php
// The people, posts, pages and comments of the site: given as JSON, made by WordPress's own functions.
$_SERVER['HTTP_HOST'] = 'blog.example';
require ABSPATH . 'wp-load.php';
require_once ABSPATH . 'wp-admin/includes/admin.php';
$wanted = json_decode(stream_get_contents(STDIN), true);

function made($what)
{
    if (is_wp_error($what) || !$what) {
        fwrite(STDERR, is_wp_error($what) ? $what->get_error_message() : 'not made');
        exit(1);
    }
    return $what;
}

function post($id, $name, $title, $text, $author, $status = 'publish')
{
    // In order, and an hour old at least: lists are the same every time.
    static $minutes = 0;
    return made(wp_insert_post([
        'import_id' => $id, 'post_name' => $name, 'post_title' => $title, 'post_content' => $text,
        'post_author' => $author, 'post_status' => $status,
        'post_date' => gmdate('Y-m-d H:i:s', 1700000000 - 60 * $minutes++),
    ], true));
}

update_option('permalink_structure', '/%postname%/');
flush_rewrite_rules();

$editor = made(wp_insert_user([
    'user_login' => 'editor', 'user_pass' => 'editor-has-a-secret', 'user_email' => 'editor@blog.example',
    'display_name' => 'editor', 'role' => 'editor',
]));
foreach ($wanted['topics'] as $number => $text) {
    $id = post(101 + $number, "topic-$number", "Topic $number", $text, $editor);
    for ($comment = 0; $comment < $number % 3; $comment++) {
        made(wp_insert_comment([
            'comment_post_ID' => $id, 'comment_author' => "Reader $comment", 'comment_approved' => 1,
            'comment_content' => "Comment $comment on topic $number.",
        ]));
    }
}
foreach ($wanted['people'] as $number => $person) {
    // Authors' names stand in public pages: here they are the login names.
    [$first, $family] = explode(' ', $person['name']);
    $id = made(wp_insert_user([
        'user_login' => $person['login'], 'user_pass' => $person['password'], 'user_email' => $person['email'],
        'first_name' => $first, 'last_name' => $family, 'display_name' => $person['login'], 'role' => 'author',
    ]));
    post(1001 + $number, "about-{$person['login']}", "About {$person['login']}", '<p>Revision 0.</p>', $id);
    post(1101 + $number, "notes-{$person['login']}", 'Notes', "<p>{$person['secret']}.</p>", $id, 'private');
}
