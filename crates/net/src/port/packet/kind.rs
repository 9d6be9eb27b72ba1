//! `packet` as a kind of port: how it attaches to an interface.

use super::group;
use super::{PacketOptions, PacketPort};
use crate::namespace::{Namespace, Offloads};
use crate::port::choose::{self, Attach, AttachOptions, Facts};
use crate::port::registry::{Kind, OpenError, Role, Sharing};
use crate::port::{LONGEST, Pool, Port};

impl From<AttachOptions> for PacketOptions {
    fn from(options: AttachOptions) -> PacketOptions {
        let default = PacketOptions::default();
        PacketOptions {
            offloads: options.offloads,
            batch: options.batch.unwrap_or(default.batch),
            promiscuous: options.promiscuous,
            timestamps: options.clock,
            ..default
        }
    }
}

/// `packet:INTERFACE`.
pub static KIND: Kind = Kind {
    name: "packet",
    argument: "INTERFACE",
    doc: "AF_PACKET on an existing interface",
    super_packets: Some("whole"),
    arrivals: "yes",
    needs: "CAP_NET_RAW",
    in_user_namespace: true,
    parse: Some(|name| Ok(choose::attached(name, Some(&KIND)))),
    role: Role::Interface(&Sockets),
};

struct Sockets;

impl Attach for Sockets {
    fn title(&self) -> &'static str {
        "AF_PACKET"
    }

    fn declines(&self, _facts: &Facts) -> Option<&'static str> {
        None
    }

    fn merit(&self) -> &'static str {
        "it serves every interface"
    }

    fn cannot(&self, offloads: Offloads) -> Vec<String> {
        let mut cannot = vec![
            format!("frames above {LONGEST} bytes (BIG TCP) are dropped and counted as `oversize`"),
            "the stack also sees what arrives; addresses on the interface keep answering"
                .to_owned(),
        ];
        if !choose::has_super_packets(offloads) {
            cannot.push("every packet costs a copy each way; AF_XDP spares one".to_owned());
        }
        cannot
    }

    fn open(
        &self,
        namespace: &Namespace,
        interface: &str,
        _pool: &mut Pool,
        options: AttachOptions,
    ) -> Result<(Box<dyn Port + Send>, Option<String>), OpenError> {
        let port = PacketPort::open(namespace, interface, options.into())?;
        Ok((Box::new(port), None))
    }

    fn open_group(
        &self,
        namespace: &Namespace,
        interface: &str,
        pools: &mut [&mut Pool],
        options: AttachOptions,
        sharing: Sharing,
    ) -> Result<Vec<Box<dyn Port + Send>>, OpenError> {
        let ports = match sharing {
            Sharing::Flows => group::open_group(namespace, interface, pools.len(), options.into())?,
            Sharing::One(worker) => {
                let open = |number| {
                    let options = PacketOptions {
                        receives: number == worker,
                        ..options.into()
                    };
                    PacketPort::open(namespace, interface, options)
                };
                (0..pools.len()).map(open).collect::<Result<_, _>>()?
            }
        };
        let boxed = |port| -> Box<dyn Port + Send> { Box::new(port) };
        Ok(ports.into_iter().map(boxed).collect())
    }

    fn keeps_flows(&self) -> bool {
        true
    }

    fn open_halves(
        &self,
        namespace: &Namespace,
        interface: &str,
        _into: &mut Pool,
        _from: &Pool,
        options: AttachOptions,
    ) -> Result<[Box<dyn Port + Send>; 2], OpenError> {
        let open = |receives| -> Result<Box<dyn Port + Send>, OpenError> {
            let options = PacketOptions {
                receives,
                ..options.into()
            };
            Ok(Box::new(PacketPort::open(namespace, interface, options)?))
        };
        Ok([open(true)?, open(false)?])
    }
}
