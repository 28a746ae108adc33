import { launch } from './launcher/launch.ts'

/*
 * `npm start`: the whole platform by one command. It starts PostgreSQL (unless DATABASE_URL names a server), runs
 * setup, keeps the web process and every worker running, and on Ctrl-C stops them in the opposite order.
 */
process.exit(await launch(process.cwd(), process.env))
