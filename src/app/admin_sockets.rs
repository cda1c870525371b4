//! The sockets of the administration, for a successor.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd};

use anteroom_config::{Address, Plan};
use anteroom_proxy::serve::Listener;
use anteroom_proxy::serve::socket::Socket;

use super::start_error::StartError;
use crate::take_over::message::{HandedSocket, Purpose};

/// A handle on each socket of the administration.
#[derive(Debug)]
pub(super) struct AdminSockets(Vec<(HandedSocket, Listener)>);

impl AdminSockets {
    /// Those that are open.
    pub(super) fn of(
        plan: &Plan,
        operators: Option<&TcpListener>,
        socket: Option<&Socket>,
    ) -> Result<Self, StartError> {
        let operators = operators.map(TcpListener::try_clone).transpose().map_err(refused)?;
        let commands = socket.map(Socket::listener).transpose().map_err(refused)?;
        let mut all = Vec::new();
        if let (Some(address), Some(listener)) = (plan.admin.address, operators) {
            let (purpose, address) = (Purpose::Operators, Address::Tcp(address).to_string());
            all.push((HandedSocket { purpose, address, file: None }, Listener::Tcp(listener)));
        }
        if let (Some(socket), Some(listener)) = (socket, commands) {
            let address = Address::Unix(socket.path().to_owned()).to_string();
            let (purpose, file) = (Purpose::Commands, Some(socket.number()));
            all.push((HandedSocket { purpose, address, file }, Listener::Unix(listener)));
        }
        Ok(Self(all))
    }

    /// All of them.
    pub(super) fn hand_out(&self) -> Vec<(HandedSocket, BorrowedFd<'_>)> {
        self.0.iter().map(|(socket, listener)| (socket.clone(), listener.as_fd())).collect()
    }

    /// Lets go of the handles.
    pub(super) fn release(&mut self) {
        self.0.clear();
    }
}

fn refused(source: io::Error) -> StartError {
    StartError::System { what: "a handle on a socket", source }
}
