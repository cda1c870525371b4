<?php // The app of siege.py in PHP: the same pages as `page_of` of siege_app.py.
$target = $_SERVER['REQUEST_URI'];
$seconds = (float) match (substr($target, 0, 5)) {
    '/slow' => 3,
    '/fast' => 0.02,
    default => getenv('SIEGE_SERVICE_S'),
};
file_put_contents(getenv('SIEGE_LOG'), hrtime(true) / 1e9 . " $seconds\n", FILE_APPEND);
usleep((int) ($seconds * 1e6));

$shown = $target;
$caching = 'no-store';
if (str_contains($target, '/private')) {
    $shown = $_SERVER['HTTP_X_ANTEROOM_USER'] ?? 'no user';
} elseif (isset($_POST['user'])) {
    header('Location: /private', true, 303);
    header('Anteroom-Login: ' . $_POST['user']);
} elseif (str_starts_with($target, '/login')) {
    $shown = '<form method=post><input name=user></form>';
} else {
    $caching = 'max-age=' . (str_starts_with($target, '/read/') ? getenv('SIEGE_FRESH_S') : 60);
}
$page = "<!doctype html><title>Page</title><p>$shown</p>";
header("Cache-Control: $caching");
header('Content-Length: ' . strlen($page));
echo $page;
