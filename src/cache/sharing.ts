import type { Config } from '../config.ts'

/** Whether processes share the answers of reads, which are then invalidated by jobs. */
export const isShared = ({ dataCache }: Config): boolean => dataCache.enabled && dataCache.adapter !== 'memory'
