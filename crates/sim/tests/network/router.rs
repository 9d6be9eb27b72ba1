//! Routers with rules instead of links.

use super::*;

fn router(commands: &str) -> Router {
    Router {
        commands: commands.into(),
        ..Router::default()
    }
}

#[test]
fn a_router_applies_its_rules_and_pipes_in_both_directions() {
    // Echoes are delayed by 10 ms in one direction and 15 ms in the other, UDP is denied.
    let commands = "pipe 1 config delay 10\n\
                    pipe 2 config delay 15\n\
                    add 100 deny udp from any to any\n\
                    add 200 pipe 1 ip from any to any in recv clients\n\
                    add 300 pipe 2 ip from any to any in recv servers\n\
                    add 400 allow ip from any to any out";
    let route = Route {
        forward: vec![0],
        backward: vec![0],
        ..Route::default()
    };
    let mut echo = ping(Span::from_ms(100));
    echo.route = route.clone();
    let udp = Flow::new(Udp::constant(mbit(1), 972), route);
    let config = Config {
        routers: vec![router(commands)],
        ..exact(Vec::new(), vec![echo, udp], 1)
    };
    let (simulation, notes) = run(&config);
    assert_eq!(notes.echoes.len(), 10);
    for echo in &notes.echoes {
        assert_eq!(echo.forward, Span::from_ms(10));
        assert_eq!(echo.round_trip, Span::from_ms(25));
    }
    let udp = simulation.totals(1);
    assert!(udp.packets_sent > 0);
    assert_eq!(udp.packets_dropped, udp.packets_sent);
    assert!(simulation.router(0).is_some());
}

#[test]
fn subscribers_behind_a_mask_get_a_pipe_each() {
    // Two subscribers with two flows each: 2 Mbit/s per source address.
    let commands = "pipe 1 config bw 2Mbit/s mask src-ip 0xffffffff queue 50\n\
                    add 100 pipe 1 ip from any to any in recv clients\n\
                    add 200 allow ip from any to any";
    let links = dumbbell(Rate::UNLIMITED, Span::from_ms(20), &queue("fifo"));
    let flows = (0..4)
        .map(|i| {
            let mut flow = bulk("cubic");
            // Router 0 is numbered after the two links.
            flow.route.forward = vec![2, 0];
            flow.route.backward = vec![1, 2];
            flow.addresses.0 = format!("192.0.2.{}", 1 + i / 2).parse().unwrap();
            flow
        })
        .collect();
    let config = Config {
        routers: vec![router(commands)],
        jitter: HOST_JITTER,
        ..exact(links, flows, 30)
    };
    let (simulation, _) = run(&config);
    let received = |flow| simulation.totals(flow).bytes_received;
    for subscriber in [received(0) + received(1), received(2) + received(3)] {
        // 1448 of 1500 bytes at 2 Mbit/s, less one second of slow start
        let capacity = 2_000_000 / 8 * 29 * 1448 / 1500;
        assert!(subscriber > capacity * 98 / 100, "{subscriber}");
        assert!(subscriber < 2_000_000 / 8 * 30);
    }
}

#[test]
fn a_router_executes_later_commands_at_their_time() {
    let mut rules = router(
        "pipe 1 config bw 1Mbit/s\nadd 100 pipe 1 ip from any to any in\n\
         add 200 allow ip from any to any",
    );
    let second = |s| Time::ZERO + Span::from_secs(s);
    rules.later = vec![(second(2), "pipe 1 config bw 4Mbit/s".into())];
    let udp = Udp::constant(mbit(8), 972);
    let route = Route {
        forward: vec![0],
        backward: vec![0],
        ..Route::default()
    };
    let flow = Flow::new(udp, route);
    let config = Config {
        routers: vec![rules],
        ..exact(Vec::new(), vec![flow], 4)
    };
    let mut simulation = Simulation::new(&config).unwrap();
    let mut sent = vec![0];
    for s in 1..=4 {
        simulation.run_until(second(s), &mut ());
        sent.push(simulation.sent_bytes(0) / 1000);
    }
    // The same command at the end of a step. The place of a command that is refused is named.
    let mut stepped = Simulation::new(&Config {
        routers: vec![Router {
            later: Vec::new(),
            ..config.routers[0].clone()
        }],
        ..config
    })
    .unwrap();
    stepped.run_until(second(2), &mut ());
    let error = stepped.command(0, "pipe 1 config bw 4Mbit/s\npipe 1 config bv 1", &mut ());
    let expected = "Line 2: column 15: unrecognised option ``bv'' (did you mean ``bw''?)";
    assert_eq!(error.unwrap().unwrap_err().to_string(), expected);
    stepped.run(&mut ());
    // The packet that is on the link at the change may take 6 ms longer, as long as three others.
    let [ours, theirs] = [&stepped, &simulation].map(|simulation| simulation.sent_bytes(0));
    assert!(ours.abs_diff(theirs) <= 4_000, "{ours} {theirs}");
    // 125 packets of 8000 bits per second, then 500
    let gains: Vec<u64> = sent.windows(2).map(|w| w[1] - w[0]).collect();
    for (gain, expected) in gains.into_iter().zip([125, 125, 500, 500]) {
        assert!(gain.abs_diff(expected) <= 1, "{sent:?}");
    }
}
