import type { Tool } from '../tool.ts'
import { accessTools, accountTools } from './accounts.ts'
import { historyTools, itemTools, schemaTools } from './data.ts'
import { fileTools } from './files.ts'
import { workflowTools, workTools } from './work.ts'

/** THE table of tools, in the order in which clients see them. */
export const tools: readonly Tool[] = [
  ...schemaTools,
  ...itemTools,
  ...historyTools,
  ...fileTools,
  ...accessTools,
  ...workTools,
  ...workflowTools,
  ...accountTools,
]
