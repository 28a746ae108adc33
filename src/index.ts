import packageJson from '../package.json' with { type: 'json' }

/*
 * The face of the package: `daybook`. Extensions take their types from `daybook/extensions`, migrations from
 * `daybook/migrations`, and frontends the client from `daybook/client`.
 */

/** The version of the program, as in its package.json. */
export const version: string = packageJson.version
