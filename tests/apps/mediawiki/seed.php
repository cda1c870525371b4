<?php
/* Users and pages of the test wiki, from JSON on stdin. */

use MediaWiki\MediaWikiServices;

require_once '/usr/share/mediawiki/maintenance/Maintenance.php';

class Seed extends Maintenance {
	public function execute() {
		$wanted = json_decode( file_get_contents( 'php://stdin' ), true );
		foreach ( $wanted['people'] as $person ) {
			$this->addUser( $person );
		}
		$author = User::newSystemUser( 'Admin', [ 'steal' => false ] ) ?: User::newFromName( 'Admin' );
		foreach ( $wanted['pages'] as $title => $text ) {
			$this->addPage( $title, $text, $author );
		}
		DeferredUpdates::doUpdates();
	}

	/** The signature is shown in the user's own preferences, and nowhere else until the user signs. */
	private function addUser( array $person ) {
		$user = User::createNew( ucfirst( $person['login'] ), [
			'email' => $person['email'],
			'real_name' => $person['name'],
		] );
		$user->changeAuthenticationData( [
			'username' => $user->getName(),
			'password' => $person['password'],
			'retype' => $person['password'],
		] );
		$options = MediaWikiServices::getInstance()->getUserOptionsManager();
		$options->setOption( $user, 'nickname', $person['secret'] );
		$user->saveSettings();
	}

	private function addPage( string $title, string $text, User $author ) {
		$page = MediaWikiServices::getInstance()->getWikiPageFactory()->newFromTitle( Title::newFromText( $title ) );
		$content = ContentHandler::makeContent( $text, $page->getTitle() );
		$status = $page->doUserEditContent( $content, $author, 'Seeded' );
		if ( !$status->isOK() ) {
			$this->fatalError( "$title: " . $status->getWikiText() );
		}
	}
}

$maintClass = Seed::class;
require_once RUN_MAINTENANCE_IF_MAIN;
