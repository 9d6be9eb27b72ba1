//! `options!`: generates everything that follows from the rows of the table of options.
//!
//! Each row becomes a variant of [`Condition`](super::Condition) (the option as written), a variant
//! of `FlowQuestion` or `PacketQuestion` (the option with its names resolved) and an entry of
//! [`OPTIONS`](super::OPTIONS). Every `match` names every row, so an option cannot lack a part.

macro_rules! options {
    (
        flow { $(
            $(#[doc = $flow_doc:literal])+
            $Flow:ident($FlowArgument:ty) {
                words: $flow_word:literal $(| $flow_alias:literal)*,
                example: $flow_example:literal,
                read: $flow_read:expr,
                test: $flow_test:expr,
            }
        )+ }
        packet { $(
            $(#[doc = $packet_doc:literal])+
            $Packet:ident($PacketArgument:ty) {
                words: $packet_word:literal $(| $packet_alias:literal)*,
                example: $packet_example:literal,
                read: $packet_read:expr,
                test: $packet_test:expr,
            }
        )+ }
    ) => {
        /// A condition on a packet, as a rule states it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Condition {
            $( $(#[doc = $flow_doc])+ $Flow($FlowArgument), )+
            $( $(#[doc = $packet_doc])+ $Packet($PacketArgument), )+
        }

        /// Every option, in the order of the table.
        pub const OPTIONS: &[RuleOption] = &[
            $( RuleOption {
                words: &[$flow_word $(, $flow_alias)*],
                example: $flow_example,
                doc: concat!($($flow_doc),+).trim_ascii(),
                is_constant: true,
            }, )+
            $( RuleOption {
                words: &[$packet_word $(, $packet_alias)*],
                example: $packet_example,
                doc: concat!($($packet_doc),+).trim_ascii(),
                is_constant: false,
            }, )+
        ];

        /// A condition with one answer for all packets of a flow, ready to be tested.
        #[derive(Clone, Debug)]
        pub(crate) enum FlowQuestion {
            $( $Flow(<$FlowArgument as Argument>::Ready), )+
        }

        /// A condition that is tested for each packet, ready to be tested.
        #[derive(Clone, Debug)]
        pub(crate) enum PacketQuestion {
            $( $Packet(<$PacketArgument as Argument>::Ready), )+
        }

        impl Condition {
            /// Reads the condition that `word` starts; `None` if `word` is not an option.
            pub(crate) fn read(p: &mut Parser<'_>, word: At<&str>) -> Parse<Option<Condition>> {
                Ok(Some(match word.value {
                    $( $flow_word $(| $flow_alias)* => {
                        let read: Read<$FlowArgument> = $flow_read;
                        Condition::$Flow(read(p, word)?)
                    } )+
                    $( $packet_word $(| $packet_alias)* => {
                        let read: Read<$PacketArgument> = $packet_read;
                        Condition::$Packet(read(p, word)?)
                    } )+
                    _ => return Ok(None),
                }))
            }

            /// The canonical word of the option.
            pub(crate) const fn word(&self) -> &'static str {
                match self {
                    $( Condition::$Flow(_) => $flow_word, )+
                    $( Condition::$Packet(_) => $packet_word, )+
                }
            }

            /// The argument, to be written.
            pub(crate) fn argument(&self) -> &dyn Written {
                match self {
                    $( Condition::$Flow(argument) => argument, )+
                    $( Condition::$Packet(argument) => argument, )+
                }
            }

            /// Resolves the names in the argument.
            pub(crate) fn question(&self, names: &mut Names<'_>) -> Question {
                match self {
                    $( Condition::$Flow(argument) => {
                        Question::Flow(FlowQuestion::$Flow(argument.ready(names)))
                    } )+
                    $( Condition::$Packet(argument) => {
                        Question::Packet(PacketQuestion::$Packet(argument.ready(names)))
                    } )+
                }
            }
        }

        impl FlowQuestion {
            #[inline]
            pub fn holds(&self, flow: &FlowFields, look: &mut Look<'_>) -> bool {
                match self {
                    $( FlowQuestion::$Flow(argument) => {
                        let test: Test<$FlowArgument, FlowFields> = $flow_test;
                        test(argument, flow, look)
                    } )+
                }
            }
        }

        impl PacketQuestion {
            #[inline]
            pub fn holds(&self, headers: &Headers, look: &mut Look<'_>) -> bool {
                match self {
                    $( PacketQuestion::$Packet(argument) => {
                        let test: Test<$PacketArgument, Headers> = $packet_test;
                        test(argument, headers, look)
                    } )+
                }
            }
        }
    };
}

pub(super) use options;
