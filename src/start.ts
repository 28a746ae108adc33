import { startSmall } from './process/start-up.ts'

/*
 * `npm start`: the whole platform by one command. It starts PostgreSQL (unless DATABASE_URL names a server), runs
 * setup, keeps the web process and every worker running, and on Ctrl-C stops them in the opposite order.
 */
startSmall()
const { launch } = await import('./launcher/launch.ts')
process.exit(await launch(process.cwd(), process.env))
