import { createDriverFactory, type DriverFactory } from 'slonik'
import { Connection, type ConnectionConfig } from './connection.ts'

/**
 * Lets slonik's transactions run on connections of ours: with their deadlines, and with the errors of the database as they
 * are.
 */
export function driverFor(config: ConnectionConfig): DriverFactory {
  return createDriverFactory(async () => ({
    createPoolClient: async ({ clientEventEmitter }) => {
      const client = new Connection({ ...config, isSpare: true })
      client.on('error', (error) => clientEventEmitter.emit('error', error))
      client.on('notice', ({ message }) => {
        if (message !== undefined) clientEventEmitter.emit('notice', { message })
      })
      return {
        connect: async () => void (await client.connect()),
        end: () => client.end(),
        query: async (text, values) => {
          const { command, fields, rowCount, rows } = await client.query(text, values as unknown[])
          return {
            command: command as 'SELECT',
            fields: fields.map(({ dataTypeID, name }) => ({ dataTypeId: dataTypeID, name })),
            rowCount,
            rows,
          }
        },
        stream: () => {
          throw new Error('transactions do not stream')
        },
      }
    },
  }))
}
